"""Local sensitivity in every step of a training on D, for many pairs.

T trials run at once in one process: the clients' sums are one sum over D. Models, noise and steps
equal those of `fedsim run` in the trials whose world is D, and so do the sensitivities, up to
rounding.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from adversaries.arrays import Floats
from adversaries.errors import InputError
from fedsim.common.device import single_threaded_kernels
from fedsim.config.needs import require
from fedsim.config.objects import Experiment, GameRules
from fedsim.game import federation
from fedsim.game.client import noise, noise_sources
from fedsim.game.mechanisms import privacy
from fedsim.learning.training.optimizers import ServerOptimizer
from fedsim.privacy.mechanism import sensitivity
from fedsim.studies.sensitivity.gradient_sensitivity import (
    Pair,
    Progress,
    Truth,
    check_pairs,
    largest,
    pair_sensitivities,
)


@dataclass(frozen=True, eq=False)
class SensitivityCheckpoint:
    """The local sensitivities of all pairs in one round of the first trial; the model is [P]."""

    round: int
    model: Tensor
    truth: Truth


@dataclass(frozen=True, eq=False)
class SensitivityCourse:
    """The local sensitivities of m pairs over the k rounds of T trials on D.

    Attributes:
        sensitivities: float64 [T, k, m].
        noise_stds: float64 [T, k], standard deviation of the whole noise of a round.
        bound: largest local sensitivity that clipping allows, C or 2C.
    """

    pairs: tuple[Pair, ...]
    sensitivities: Floats
    noise_stds: Floats
    bound: float
    checkpoints: tuple[SensitivityCheckpoint, ...]


def follow(
    experiment: Experiment,
    batch: int,
    pairs: Sequence[Pair],
    trials: int,
    progress: Progress | None = None,
    checkpoints: Collection[int] = (),
) -> SensitivityCourse:
    """Train trials 0..T-1 on D and measure the local sensitivity of the pairs in every round.

    With privacy.sensitivity = "local", each round's noise is scaled to the local sensitivity of
    pairs[0], the challenge. With distributed trust, the clients' shares are drawn as one, which has
    the same distribution. Results do not depend on the batch, up to rounding.

    Args:
        batch: number of trials that are trained at a time (see `plan.fit_batch`).
        trials: T, at least 1.
        checkpoints: rounds, from 1, at whose start the first trial measures all pairs.
    """
    rules, scheme = experiment.game, experiment.game.scheme
    check_steps(rules)
    rounds = scheme.training.rounds
    if not pairs or trials < 1:
        raise InputError(f"{len(pairs)} pairs and {trials} trials; give at least one of each")
    if beyond := sorted(set(checkpoints) - set(range(1, rounds + 1))):
        raise InputError(
            f"a checkpoint is at round {beyond[0]}, but there are {rounds} rounds; "
            f"give 1 to {rounds}"
        )
    loaded, neighbouring = federation.load(experiment), scheme.privacy.neighbouring
    check_pairs(loaded, pairs, neighbouring)
    multiplier, sources = privacy.noise_multiplier(scheme), noise_sources(scheme.federation)
    bound = sensitivity(neighbouring, scheme.training.clipping_norm)
    if loaded.device.type == "cpu":
        single_threaded_kernels()
    sensitivities = np.empty((trials, rounds, len(pairs)))
    stds, points = np.empty((trials, rounds)), list[SensitivityCheckpoint]()
    for first in range(0, trials, batch):
        part = range(first, min(first + batch, trials))
        rows = slice(part.start, part.stop)
        theta = federation.initial_parameters(rules, loaded, part).to(loaded.device)
        optimizer = ServerOptimizer(scheme.training, scheme.participation.divisor)
        for round in range(1, rounds + 1):
            sensitivities[rows, round - 1] = pair_sensitivities(loaded, theta, pairs)
            if first == 0 and round in checkpoints:
                truth = largest(loaded, theta[0], neighbouring, of=pairs)
                points.append(SensitivityCheckpoint(round, theta[0].clone(), truth))
            scale = np.full(len(part), bound)
            if scheme.privacy.sensitivity == "local":
                scale = sensitivities[rows, round - 1, 0]
            each = torch.from_numpy(multiplier * scale).to(theta.device)
            drawn = torch.zeros(theta.shape, dtype=torch.float64, device=theta.device)
            for source in sources:
                drawn += noise(rules.noise_seed, part, round, source, each, theta.shape[1])
            # Independent noise of equal size: the variances of all sources add up.
            stds[rows, round - 1] = multiplier * scale * np.sqrt(len(sources))
            total = loaded.clipped_sum(theta, np.arange(scheme.records)) + drawn
            theta = optimizer.step(theta, total.float(), round)  # a run broadcasts float32, too
            if progress is not None:
                progress((first * rounds + len(part) * round) / (trials * rounds))
    return SensitivityCourse(tuple(pairs), sensitivities, stds, bound, tuple(points))


def check_steps(rules: GameRules) -> None:
    """Raise InputError unless the training's steps are those of Algorithm 1."""
    require(
        (
            ("privacy.unit", rules.scheme.privacy.unit, "record"),
            ("privacy.stop-at", rules.scheme.privacy.stop_at, 0.0),
            ("training.clipping", rules.scheme.training.clipping, True),
            ("training.local-steps", rules.scheme.training.local_steps, 1),
            ("training.sampling-rate", rules.scheme.training.sampling_rate, 1.0),
            ("federation.sampling-rate", rules.scheme.federation.sampling_rate, 1.0),
            ("federation.dropout-rate", rules.scheme.federation.dropout_rate, 0.0),
            ("challenge.kind", rules.challenge.kind, "record"),
        ),
        "fedsim sensitivity measures full batches of all clients' records with clipped gradients, "
        "in all rounds",
    )
