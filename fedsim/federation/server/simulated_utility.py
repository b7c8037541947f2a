"""How well the model serves each client: an instrument of simulations, measured on the data itself.

In the first trial, at a few rounds and for some clients: the accuracy of the global model on each
one's records, and where clients train by themselves, that of their own models on held-out records.
Nothing of it is released, and no noise hides it.
"""

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedsim.config.objects import GameRules
from fedsim.game import local_training
from fedsim.game.federation import Federation
from fedsim.game.known_round import KnownRound
from fedsim.game.round_game import RoundGame

Floats = npt.NDArray[np.float64]

MOST_CLIENTS = 100
"""How many clients are looked at: a quantile of theirs is that of all to a few per cent."""

POINTS = 10
"""At how many rounds besides the first model."""


def clients(count: int) -> list[int]:
    """Return the clients that are looked at, spread evenly over all."""
    return np.unique(np.linspace(0, count - 1, min(count, MOST_CLIENTS)).astype(int)).tolist()


def rounds(last: int) -> list[int]:
    """Return the rounds after which they are, 0 for the first model."""
    return np.unique(np.linspace(0, last, POINTS + 1).round().astype(int)).tolist()


def measure(rules: GameRules, known: Federation, model: Tensor, round: int) -> dict[str, Floats]:
    """Return how well a model, and the clients' own after it, do.

    model: float32 [1, P], of the first trial.
    Returns: shares in [0, 1], [1, c] each: `client_accuracies` of the model on each client's
    records, and where a client is the unit of privacy `own_model_accuracies` on the held-out
    records, of what a client has before it is clipped and summed; `client_weights`, the shares of
    the records looked at that each client has.
    """
    looked_at = clients(rules.scheme.federation.clients)
    owned = [known.owned_by(client) for client in looked_at]
    _, correct = known.evaluate(model, *known.members(np.concatenate(owned)))
    hits = correct[0].cpu().numpy().astype(np.float64)
    starts = np.cumsum([0, *map(len, owned)])[:-1]
    sizes = np.array([len(mine) for mine in owned])
    means = np.add.reduceat(hits, starts) / sizes
    found = {"client_accuracies": means[None], "client_weights": (sizes / sizes.sum())[None]}
    if rules.scheme.privacy.unit == "client":
        found["own_model_accuracies"] = _own_models(rules, known, model, round, looked_at)[None]
    return found


def _own_models(
    rules: GameRules, known: Federation, model: Tensor, round: int, looked_at: list[int]
) -> Floats:
    """Return the accuracy of clients' own models on the held-out records, [c]."""
    found, game = np.empty(len(looked_at)), RoundGame(round + 1, range(1), 0.0, -1, None, None)
    for group in local_training.alike(known, looked_at, model):
        updates = local_training.trained(KnownRound(rules, known, game, model), group)
        own = (model.double() - updates[:, 0]).float()
        _, correct = known.evaluate(own, *known.held_out())
        found[np.searchsorted(looked_at, group)] = correct.double().mean(1).cpu().numpy()
    return found


def joined(measured: list[dict[str, Floats]], looked_at: list[int]) -> dict[str, Floats]:
    """Return the measurements of all rounds as arrays of a transcript.

    Returns: what `measure` returns, [points, c], and `client_points` [points], the rounds.
    """
    if not measured:
        return {}
    found = {name: np.concatenate([each[name] for each in measured]) for name in measured[0]}
    return {"client_points": np.asarray(looked_at, dtype=np.float64), **found}
