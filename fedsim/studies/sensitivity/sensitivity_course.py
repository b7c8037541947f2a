"""Local sensitivity in every step of a training on D, for many pairs.

The trainings are those of `studies.rounds`: models, noise and steps equal those of `fedsim run` in
the trials whose world is D, and so do the sensitivities, up to rounding.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from adversaries.arrays import Floats
from adversaries.errors import InputError
from fedsim.configuration.objects import Experiment
from fedsim.game import federation
from fedsim.game.mechanisms import privacy
from fedsim.privacy.mechanism import aggregate_noise_multiplier, sensitivity
from fedsim.studies import rounds
from fedsim.studies.rounds import Progress, Round
from fedsim.studies.sensitivity.gradient_sensitivity import (
    Pair,
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
    pairs[0], the challenge. Results do not depend on the batch, up to rounding.

    Args:
        batch: number of trials that are trained at a time (see `plan.fit_batch`).
        trials: T, at least 1.
        checkpoints: rounds, from 1, at whose start the first trial measures all pairs.
    """
    rules, scheme = experiment.game, experiment.game.scheme
    rounds.refuse_unplayed(rules, rounds.SENSITIVITY)
    length = scheme.training.rounds
    if not pairs or trials < 1:
        raise InputError(f"{len(pairs)} pairs and {trials} trials; give at least one of each")
    if beyond := sorted(set(checkpoints) - set(range(1, length + 1))):
        raise InputError(
            f"a checkpoint is at round {beyond[0]}, but there are {length} rounds; "
            f"give 1 to {length}"
        )
    loaded, neighbouring = federation.load(experiment), scheme.privacy.neighbouring
    check_pairs(loaded, pairs, neighbouring)
    multiplier, clients = privacy.noise_multiplier(scheme), scheme.federation.clients
    whole = aggregate_noise_multiplier(multiplier, scheme.federation.trust, clients, clients)
    sensitivities = np.empty((trials, length, len(pairs)))
    stds, points = np.empty((trials, length)), list[SensitivityCheckpoint]()

    def release(round: Round) -> Tensor:
        measured = pair_sensitivities(loaded, round.theta, pairs)
        if round.trials.start == 0 and round.number in checkpoints:
            truth = largest(loaded, round.theta[0], neighbouring, of=pairs)
            points.append(SensitivityCheckpoint(round.number, round.theta[0].clone(), truth))
        local = scheme.privacy.sensitivity == "local"
        scale = measured[:, 0] if local else np.full(len(measured), round.bound)
        sensitivities[round.rows, round.number - 1] = measured
        stds[round.rows, round.number - 1] = whole * scale
        return round.clean_sum() + round.noise(multiplier, scale)

    for part in rounds.batches(trials, batch):
        rounds.train(rules, loaded, part, release, progress=rounds.share(progress, trials))
    bound = sensitivity(neighbouring, scheme.training.clipping_norm)
    return SensitivityCourse(tuple(pairs), sensitivities, stds, bound, tuple(points))
