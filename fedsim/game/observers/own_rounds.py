"""A participant that is itself sampled: it sees the models of its own rounds, and the last one.

Between two of them it sees the sum of several rounds at once, at models that it did not see. Their
way is taken from a replay without noise, bent to end at the model that it saw, and the sum for
Gaussian around it: an attack. Exact where the two are of consecutive rounds, in which nothing had
to be guessed. As everybody here it is granted the coins of all clients but the target.
"""

import torch
from torch import Tensor

from adversaries.attacks.posterior import hypotheses, log_likelihood_ratio
from fedsim.config.objects import GameRules
from fedsim.game.federation import Federation
from fedsim.game.observers.memory import HISTORY, Memory
from fedsim.game.observers.participant import entered
from fedsim.game.observers.released_model import noise_std, sums
from fedsim.game.round_game import RoundGame


def observe(
    memory: Memory,
    rules: GameRules,
    federation: Federation,
    game: RoundGame,
    start: Tensor,
    end: Tensor,
    rounds: int,
) -> Memory:
    """Return the memory after a model of a later round: in its last column what both say together.

    With R the sum of the L aggregates between, and the target in each by a coin of rate q, it is
    the mixture over Bin(L, q) of `adversaries.attacks.posterior.drawn_mixture`, for the mean of the
    target's updates along the way.

    memory: of the rounds before `game.round`.
    game: the round that `start` is the model of, its trials and the target.
    start: float32 [T, P], the model that was seen then.
    end: float32 [T, P], that of a later round.
    """
    step = rules.scheme.training.learning_rate / rules.scheme.participation.divisor
    path = _path(rules, federation, game, start, end, rounds)
    known, difference = torch.zeros_like(end).double(), torch.zeros_like(end).double()
    for place, model in enumerate(path):
        common, present, _ = sums(rules, federation, game.at(game.round + place), model)
        known += common
        difference += present
    # In `sums` the target is there by a share q.
    update = difference / (rounds * rules.scheme.participation.rate)
    std = noise_std(rules.scheme, game.noise_multiplier, update, game.round) * rounds**0.5
    expected = hypotheses(known, update, None, std, rules.scheme.participation.rate, rounds)
    ratios = log_likelihood_ratio(expected, (start.double() - end.double()) / step)
    # What is known only at the end stands in the column of the last round.
    silent = dict.fromkeys(HISTORY, torch.zeros_like(ratios)) | {"noise_stds": std}
    for _ in range(rounds - 1):
        memory = entered(memory, silent)
    found = {
        "ratios": ratios,
        "sensitivities": expected.sensitivity,
        "present_norms": expected.present_norm,
    }
    return entered(memory, silent | found)


def _path(
    rules: GameRules,
    federation: Federation,
    game: RoundGame,
    start: Tensor,
    end: Tensor,
    rounds: int,
) -> list[Tensor]:
    """Return the models that the rounds began with: replayed without noise, bent to the end."""
    step = rules.scheme.training.learning_rate / rules.scheme.participation.divisor
    path = [start]
    for place in range(rounds):
        known, present, _ = sums(rules, federation, game.at(game.round + place), path[-1])
        # Halfway between the two worlds.
        path.append((path[-1].double() - step * (known + present / 2)).float())
    surprise = end.double() - path.pop().double()
    return [
        (model.double() + place / rounds * surprise).float() for place, model in enumerate(path)
    ]
