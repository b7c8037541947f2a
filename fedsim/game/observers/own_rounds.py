"""A participant that is itself sampled: it sees the models of its own rounds, and the last one.

Between two of them it sees only the sum of several rounds. The attack takes their models from a
replay without noise, bent to end at the model that it saw, and treats the sum as Gaussian around
it. It is exact for consecutive rounds.
"""

import torch
from torch import Tensor

from adversaries.attacks.posterior import hypotheses, log_likelihood_ratio
from fedsim.config.objects import GameRules
from fedsim.game.client import noise_std
from fedsim.game.federation import Federation
from fedsim.game.observers.memory import HISTORY, Memory
from fedsim.game.observers.participant import entered
from fedsim.game.observers.released_model import sums
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
    """Return the memory after a model of a later round, with both models' evidence at its end.

    Let R be the sum of the L aggregates between them, with the target in each by a coin of rate q.
    The ratio is the mixture over Bin(L, q) of `adversaries.attacks.posterior.drawn_mixture`.

    game: the round of the model `start`, [T, P], the earlier of the two.
    """
    step = rules.scheme.training.rate / rules.scheme.participation.divisor
    path = _path(rules, federation, game, start, end, rounds)
    shared, difference = torch.zeros_like(end).double(), torch.zeros_like(end).double()
    for place, model in enumerate(path):
        common, present, _ = sums(rules, federation, game.at(game.round + place), model)
        shared += common
        difference += present
    # `sums` includes the target with weight q.
    update = difference / (rounds * rules.scheme.participation.rate)
    std = noise_std(rules.scheme, game.noise_multiplier, update, game.round) * rounds**0.5
    expected = hypotheses(shared, update, None, std, rules.scheme.participation.rate, rounds)
    # Plain steps move the model by -step times each aggregate, so this quotient is their sum R.
    ratios = log_likelihood_ratio(expected, (start.double() - end.double()) / step)
    # Evidence that arrives only at the end is in the column of the last round.
    silent = dict.fromkeys(HISTORY, torch.zeros_like(ratios)) | {"noise_stds": std}
    for _ in range(rounds - 1):
        memory = entered(memory, silent)
    last = {
        "ratios": ratios,
        "sensitivities": expected.sensitivity,
        "present_norms": expected.present_norm,
    }
    return entered(memory, silent | last)


def _path(
    rules: GameRules,
    federation: Federation,
    game: RoundGame,
    start: Tensor,
    end: Tensor,
    rounds: int,
) -> list[Tensor]:
    """Return the models at the start of the rounds: replayed without noise, bent to the end."""
    step = rules.scheme.training.rate / rules.scheme.participation.divisor
    path = [start]
    for place in range(rounds):
        shared, present, _ = sums(rules, federation, game.at(game.round + place), path[-1])
        # Halfway between the two worlds.
        path.append((path[-1].double() - step * (shared + present / 2)).float())
    surprise = end.double() - path.pop().double()
    # The deviation at the end grows evenly over the rounds: the mean of a Gaussian bridge.
    return [
        (model.double() + place / rounds * surprise).float() for place, model in enumerate(path)
    ]
