"""The model's accuracy for each client: an instrument of simulations, without noise or release."""

import numpy as np
from torch import Tensor

from adversaries.arrays import Floats
from fedsim.configuration.objects import GameRules
from fedsim.game import local_training
from fedsim.game.federation import Federation
from fedsim.game.known_round import KnownRound
from fedsim.game.round_game import RoundGame

MOST_CLIENTS = 100
"""Largest number of measured clients. Their quantiles are within a few per cent of all clients'."""

POINTS = 10
"""Number of measured rounds beside the first model."""


def clients(count: int) -> list[int]:
    return np.unique(np.linspace(0, count - 1, min(count, MOST_CLIENTS)).astype(int)).tolist()


def rounds(last: int) -> list[int]:
    """Return the rounds after which clients are measured; 0 stands for the first model."""
    return np.unique(np.linspace(0, last, POINTS + 1).round().astype(int)).tolist()


def measure(rules: GameRules, loaded: Federation, model: Tensor, round: int) -> dict[str, Floats]:
    """Return the accuracy of a model, and of the clients' own models after it.

    model: float32 [1, P].
    Returns: [1, c]. `client_weights` is each client's share of the measured records.
    `own_model_accuracies` is the accuracy of a client's own model, before it is clipped and summed,
    on the held-out records.
    """
    looked_at = clients(rules.scheme.federation.clients)
    owned = [loaded.owned_by(client) for client in looked_at]
    _, correct = loaded.evaluate(model, *loaded.members(np.concatenate(owned)))
    hits = correct[0].cpu().numpy().astype(np.float64)
    starts = np.cumsum([0, *map(len, owned)])[:-1]
    sizes = np.array([len(mine) for mine in owned])
    # The records are in the order of the clients: each client's sum begins where its records do.
    means = np.add.reduceat(hits, starts) / sizes
    arrays = {"client_accuracies": means[None], "client_weights": (sizes / sizes.sum())[None]}
    if rules.scheme.privacy.unit == "client":
        arrays["own_model_accuracies"] = _own_models(rules, loaded, model, round, looked_at)[None]
    return arrays


def _own_models(
    rules: GameRules, loaded: Federation, model: Tensor, round: int, looked_at: list[int]
) -> Floats:
    """Return the accuracy of clients' own models on the held-out records, [c]."""
    accuracies = np.empty(len(looked_at))
    game = RoundGame(round + 1, range(1), 0.0, -1, None, None)
    for group in local_training.alike(loaded, looked_at, model):
        updates = local_training.trained(KnownRound(rules, loaded, game, model), group)
        own = (model.double() - updates[:, 0]).float()
        _, correct = loaded.evaluate(own, *loaded.held_out())
        accuracies[np.searchsorted(looked_at, group)] = correct.double().mean(1).cpu().numpy()
    return accuracies


def joined(measured: list[dict[str, Floats]], looked_at: list[int]) -> dict[str, Floats]:
    """Return the arrays of `measure` over all rounds, [points, c], and their `client_points`."""
    if not measured:
        return {}
    arrays = {name: np.concatenate([each[name] for each in measured]) for name in measured[0]}
    return {"client_points": np.asarray(looked_at, dtype=np.float64), **arrays}
