"""The belief of somebody who sees the released model alone: theta_k, knowing theta_0.

Where the server's optimiser is linear in the aggregates, theta_0 - theta_k = sum_i c_i r_i, one
Gaussian observation around what the clients summed along the way. The way itself was not seen: its
models are taken from a replay without noise, bent to end at the model that was released. An attack,
not an exact posterior, unless there was one round only, in which nothing had to be guessed.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adversaries.attacks.poisoning import logit_gain
from adversaries.errors import InputError
from fedsim.config.objects import GameRules, Scheme
from fedsim.config.training import TrainingConfig
from fedsim.game.client import challenge_contributions, common_part
from fedsim.game.federation import Federation, initial_parameters
from fedsim.game.known_round import KnownRound
from fedsim.game.mechanisms import summing
from fedsim.game.mechanisms.step import Step, join
from fedsim.game.round_game import RoundGame
from fedsim.learning.training.optimizers import LINEAR, ServerOptimizer
from fedsim.privacy.mechanism import aggregate_noise_multiplier
from fedsim.privacy.participation.rule import Participation
from fedsim.privacy.trust.model import Vantage

Floats = npt.NDArray[np.float64]


def why_not(scheme: Scheme) -> str | None:
    """Return why the released model is not attacked, None where it is."""
    training = scheme.training
    if training.optimizer not in LINEAR:
        return (
            f"the model is no linear function of the aggregates under the optimiser "
            f"'{training.optimizer}'"
        )
    if training.local_steps > 1:
        return "clients took steps of their own, whose models would have to be guessed as well"
    if scheme.federation.tolerated_dropouts:
        return "which clients took part in which round is known to those who saw the rounds alone"
    if (noise := scheme.privacy.noise.mechanism).own_law:
        return f"the law of {noise.title} depends on the way there, which was not seen"
    if scheme.participation.secret and scheme.participation.setting.seed is None:
        return "which of the others took part is known to themselves alone"
    return None


def check(scheme: Scheme) -> None:
    """Check that the released model can be attacked if it is the configured vantage.

    Raises InputError if it is, and cannot be.
    """
    reason = why_not(scheme)
    if scheme.federation.vantage is Vantage.RELEASED_MODEL and reason:
        raise InputError(
            f"federation.vantage is 'released-model', but {reason}; choose 'participant', whose "
            "bound is an upper bound for the released model"
        )


def responses(training: TrainingConfig, participation: Participation, rounds: int) -> Floats:
    """Return how the model answers the aggregates: theta_0 - theta_i = sum_j a_ij r_j.

    From unit impulses, one in each round, pushed through the server's optimiser.

    Returns: a, float64 [k, k].
    """
    optimizer = ServerOptimizer(training, participation.divisor)
    moved, still = torch.zeros(rounds, 1), torch.zeros(rounds, 1)
    answers, total = [], torch.zeros(rounds, dtype=torch.float64)
    for round in range(1, rounds + 1):
        impulse = torch.zeros(rounds, 1)
        impulse[round - 1] = 1
        moved = optimizer.step(still, impulse, round)
        total = total - moved[:, 0].double()
        answers.append(total)
    return torch.stack(answers).numpy()


def shares(answers: Floats) -> Floats:
    """Return which share of a surprise at theta_k was there after each round, [k].

    Of noise alike in all rounds, the displacement W_i given W_k is expected to be W_k cov(W_i,
    W_k)/var(W_k): the Gaussian bridge, i/k for plain SGD.

    answers: [k, k] as of `responses`.
    """
    final: Floats = answers[-1]
    return answers @ final / (final @ final)


def attack(
    rules: GameRules,
    federation: Federation,
    game: RoundGame,
    released: Tensor,
    bridged: bool = True,
) -> dict[str, Floats]:
    """Return what theta_k says, in all rounds together: the score is the log-likelihood ratio.

        <R - sum_i c_i (known_i + middle_i), D> / (sum_i c_i^2 sigma_i^2),   D = sum_i c_i q Delta_i

    with R = theta_0 - theta_k, and D and sigma divided by |c| so that they are in the units of a
    clipped sum. Where records or clients are sampled the others' coins are known and the target's
    is replaced by its mean q. Costs two trainings.

    game: of round k, the last; the numbers of its trials say, with the configuration, theta_0.
    released: theta_k, float32 [T, P].
    bridged: whether the models along the way are bent to end at theta_k; False stays on the replay.
    Returns: the arrays [T, k] of a `Step` each round. Everything is in the last column, since
    nothing is seen before.
    """
    rounds = game.round
    theta = initial_parameters(rules, federation, game.trials).to(released.device)
    participation = rules.scheme.participation
    answers = responses(rules.scheme.training, participation, rounds)
    weights, bridge = answers[-1], shares(answers)
    # The models from theta_0 on without noise, halfway between the two worlds.
    path = [theta]
    optimizer = ServerOptimizer(rules.scheme.training, participation.divisor)
    for round in range(1, rounds + 1):
        known, present, absent = sums(rules, federation, game.at(round), path[-1])
        middle = (known + (present + absent) / 2).float()
        path.append(optimizer.step(path[-1], middle, round))
    # Bent to end at the model that was released, and each round's sums at the bent models.
    surprise = released.double() - path[-1].double()
    observed = theta.double() - released.double()
    scale = float(np.linalg.norm(weights))
    difference, variance = torch.zeros_like(observed), torch.zeros_like(observed[:, 0])
    for round, weight in enumerate(weights, start=1):
        model = path[round - 1]
        if bridged and round > 1:
            model = (model.double() + float(bridge[round - 2]) * surprise).float()
        known, present, absent = sums(rules, federation, game.at(round), model)
        observed -= weight * (known + (present + absent) / 2)
        difference += weight * (present - absent)
        std = noise_std(rules.scheme, game.noise_multiplier, present - absent, round)
        variance += weight**2 * std**2
    # One Gaussian observation of all rounds together.
    distance = difference.norm(dim=-1)
    score = torch.linalg.vecdot(observed, difference) / variance
    nothing, norm = torch.zeros_like(distance), distance / scale
    score = torch.where(distance == 0, 0.0, score)
    last = Step(score, norm, variance.sqrt() / scale, norm, nothing)
    before = Step(nothing, nothing, last.noise_stds, nothing, nothing)
    return join([*[before.learnt] * (rounds - 1), last.learnt])


def sums(
    rules: GameRules, federation: Federation, game: RoundGame, parameters: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the sum that both worlds have in a round, and what D and D' are expected to add.

    parameters: float32 [T, P], the models that the round begins with.
    Returns: float64 [T, P], three times; of a sampled target a share q of what it would add.
    """
    seen = KnownRound.drawn(rules, federation, game, parameters)
    rate = rules.scheme.participation.rate
    known = common_part(seen, range(rules.scheme.federation.clients))
    present, absent = challenge_contributions(seen)
    return known, rate * present, rate * absent


def noise_std(scheme: Scheme, nominal: float, difference: Tensor, round: int) -> Tensor:
    """Return sigma of a round's noise [T], from all who add some.

    difference: [T, P], how far the two worlds' sums are apart.
    """
    trust, there = scheme.federation.trust, scheme.participation.participants(round)
    sources = 1 if trust.model.server_draws else len(there)
    multiplier = aggregate_noise_multiplier(
        nominal, trust, scheme.participation.expected_clients, sources
    )
    if not sources:  # of nobody there is nothing, nor any noise
        multiplier = 0.0
    if scheme.privacy.sensitivity == "local":
        return multiplier * difference.norm(dim=-1) / scheme.training.sampling_rate
    bound = summing.sensitivity(scheme, nominal, difference.shape[1])
    return torch.full_like(difference[:, 0], multiplier * bound)


def poison_scores(
    rules: GameRules, federation: Federation, trials: range, released: Tensor
) -> Floats | None:
    """Return the score of every released model: of the adversary that crafted the challenge.

    It looks at what the challenge was crafted to move. The higher the score, the likelier the model
    was trained on D; where the threshold lies is for the auditor to find out.

    By challenge.kind: of "clipbkd" (f(x_p) - f(0)) . y_p (CLIPBKDTEST); of "gradient" <theta_0 -
    theta_k, u>, how far the model went down the vector u; of other records the negative loss
    (BACKDOORTEST, which prints the loss with the sign of a model that was not trained on it).

    released: theta_k, float32 [T, P].
    Returns: float64 [T]; None where nothing was crafted.
    Source: Jagielski, Ullman and Oprea, 2020.
    """
    crafted = federation.crafted
    if crafted is None:
        return None
    if crafted.direction is not None:
        start = initial_parameters(rules, federation, trials).to(released.device)
        moved = start.double() - released.double()
        return (moved @ crafted.direction.to(moved)).cpu().numpy()
    features, labels = federation.members(np.asarray([crafted.record]))
    if rules.challenge.kind == "clipbkd":
        pair = torch.cat([features, torch.zeros_like(features)])
        found = federation.logits(released, pair).double().cpu().numpy()
        return logit_gain(found[:, 0], found[:, 1], int(labels[0]))
    losses, _ = federation.evaluate(released, features, labels)
    return -losses[:, 0].cpu().numpy()
