"""The belief of an observer of the released model alone: it sees theta_k and knows theta_0.

Where the server's optimiser is linear in the aggregates, theta_0 - theta_k = sum_i c_i r_i is one
Gaussian observation. The attack takes the models between from a replay without noise, bent to end
at the released model: an exact posterior only for a single round.
"""

import numpy as np
import torch
from torch import Tensor

from adversaries.arrays import Floats
from adversaries.attacks.poisoning import logit_gain
from adversaries.errors import InputError
from fedsim.configuration import Config
from fedsim.configuration.training import TrainingConfig
from fedsim.game.federation import Federation, initial_parameters
from fedsim.game.known_round import KnownRound
from fedsim.game.mechanisms.step import Step, join
from fedsim.game.pair import challenge_contributions, common_part, noise_std
from fedsim.game.round_game import RoundGame
from fedsim.learning.training.optimizers import LINEAR, ServerOptimizer
from fedsim.privacy.participation.rule import Participation
from fedsim.privacy.trust import Vantage


def why_not(config: Config) -> str | None:
    """Return why the released model is not attacked; None where it is."""
    training = config.training
    if training.optimizer not in LINEAR:
        return (
            "the model is not a linear function of the aggregates with the optimiser "
            f"'{training.optimizer}'"
        )
    if training.local_steps > 1:
        return "clients take local steps, whose models the adversary would have to guess as well"
    if config.federation.tolerated_dropouts:
        return "only observers of the rounds know which clients took part in which round"
    if config.participation.secret and config.participation.seed is None:
        return "only the clients know which other records took part"
    return None


def check_attackable(config: Config) -> None:
    """Raise InputError if the released model is the configured vantage, but cannot be attacked."""
    reason = why_not(config)
    if config.federation.vantage is Vantage.RELEASED_MODEL and reason:
        raise InputError(
            f"federation.vantage is 'released-model', but {reason}; set it to 'participant', whose "
            "bound is an upper bound for the released model"
        )


def responses(training: TrainingConfig, participation: Participation, rounds: int) -> Floats:
    """Return a, float64 [k, k], with theta_0 - theta_i = sum_j a_ij r_j, from unit impulses."""
    optimizer = ServerOptimizer(training, participation.divisor)
    moved, still = torch.zeros(rounds, 1), torch.zeros(rounds, 1)
    answers, total = [], torch.zeros(rounds, dtype=torch.float64)
    for round in range(1, rounds + 1):
        # Row j is a model of one parameter with an impulse in round j alone.
        impulse = torch.zeros(rounds, 1)
        impulse[round - 1] = 1
        # A step from 0 is the movement itself; momentum carries earlier impulses on.
        moved = optimizer.step(still, impulse, round)
        total = total - moved[:, 0].double()
        answers.append(total)
    return torch.stack(answers).numpy()


def shares(answers: Floats) -> Floats:
    """Return the share of the deviation at theta_k after each round, [k]: a Gaussian bridge."""
    final: Floats = answers[-1]
    # Cov(deviation_i, deviation_k)/Var(deviation_k), for noise of the same size in all rounds.
    return answers @ final / (final @ final)


def attack(
    config: Config, federation: Federation, game: RoundGame, released: Tensor, bridged: bool = True
) -> dict[str, Floats]:
    """Return the evidence of theta_k for all rounds together: a log-likelihood ratio as the score.

        <R - sum_i c_i (known_i + middle_i), D> / (sum_i c_i^2 sigma_i^2),   D = sum_i c_i q Delta_i

    with R = theta_0 - theta_k. D and sigma are divided by |c|, so that they are in the units of a
    clipped sum. A target's coin is replaced by its mean q, other coins are known.

    game: of the last round k.
    released: theta_k, float32 [T, P].
    bridged: whether models along the way are bent to end at theta_k.
    Returns: the arrays [T, k] of a `Step` for each round, with all the evidence in the last column.
    """
    rounds = game.round
    theta = initial_parameters(config, federation, game.trials).to(released.device)
    participation = config.participation
    answers = responses(config.training, participation, rounds)
    weights, bridge = answers[-1], shares(answers)
    # Models from theta_0 on without noise, halfway between the two worlds.
    path = [theta]
    optimizer = ServerOptimizer(config.training, participation.divisor)
    for round in range(1, rounds + 1):
        common, present, absent = sums(config, federation, game.at(round), path[-1])
        middle = (common + (present + absent) / 2).float()
        path.append(optimizer.step(path[-1], middle, round))
    # Bend them to end at the released model, and take each round's sums at the bent models.
    surprise = released.double() - path[-1].double()
    observed = theta.double() - released.double()
    scale = float(np.linalg.norm(weights))
    difference, variance = torch.zeros_like(observed), torch.zeros_like(observed[:, 0])
    for round, weight in enumerate(weights, start=1):
        model = path[round - 1]
        if bridged and round > 1:
            model = (model.double() + float(bridge[round - 2]) * surprise).float()
        common, present, absent = sums(config, federation, game.at(round), model)
        observed -= weight * (common + (present + absent) / 2)
        difference += weight * (present - absent)
        std = noise_std(config, game.noise_multiplier, present - absent, round)
        variance += weight**2 * std**2
    # One Gaussian observation of all rounds together.
    distance = difference.norm(dim=-1)
    # The log-likelihood ratio of two Gaussians, observed from the middle between their means.
    score = torch.linalg.vecdot(observed, difference) / variance
    nothing, norm = torch.zeros_like(distance), distance / scale
    score = torch.where(distance == 0, 0.0, score)
    last = Step(score, norm, variance.sqrt() / scale, norm, nothing)
    before = Step(nothing, nothing, last.noise_stds, nothing, nothing)
    return join([*[before.learnt] * (rounds - 1), last.learnt])


def sums(
    config: Config, federation: Federation, game: RoundGame, parameters: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the sum that both worlds share, and the expected parts of D and D', [T, P]."""
    knowledge = KnownRound.drawn(config, federation, game, parameters)
    rate = config.participation.rate
    common = common_part(knowledge, range(config.federation.clients))
    present, absent = challenge_contributions(knowledge)
    return common, rate * present, rate * absent


def poison_scores(
    config: Config, federation: Federation, trials: range, released: Tensor
) -> Floats | None:
    """Return the score of every released model, by the adversary that crafted the target.

    By challenge.kind: for "clipbkd" (f(x_p) - f(0)) . y_p (CLIPBKDTEST); for "gradient" <theta_0 -
    theta_k, u>; for other records the negative loss (BACKDOORTEST).

    Returns: float64 [T]; None where nothing was crafted. Source: Jagielski, Ullman and Oprea, 2020.
    """
    crafted = federation.crafted
    if crafted is None:
        return None
    if crafted.direction is not None:
        start = initial_parameters(config, federation, trials).to(released.device)
        moved = start.double() - released.double()
        return (moved @ crafted.direction.to(moved)).cpu().numpy()
    features, labels = federation.members(np.asarray([crafted.record]))
    if config.challenge.kind == "clipbkd":
        pair = torch.cat([features, torch.zeros_like(features)])
        logits = federation.outputs(released, pair).double().cpu().numpy()
        return logit_gain(logits[:, 0], logits[:, 1], int(labels[0]))
    losses, _ = federation.evaluate(released, features, labels)
    return -losses[:, 0].cpu().numpy()
