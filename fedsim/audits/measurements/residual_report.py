"""Tests of the residuals of a run: whether the aggregates are what the mechanism claims.

Outside the one direction in which the worlds differ, the adversary expects noise alone. Each test
names the likely cause where that does not hold. The sizes of the batches are tested too.
"""

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from adversaries.attacks import residuals
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.results.theory import NoiseTestResult, Residuals, ScaleTest
from fedsim.audits.results.verdicts import AlarmCheck
from fedsim.configuration.objects import Scheme
from fedsim.federation.runs.run_directory import Arrays
from fedsim.federation.runs.run_transcript import RESIDUALS
from fedsim.game.mechanisms.vantages import suffix
from fedsim.privacy.trust import Vantage

MEANING = (
    "Residuals are the aggregates minus everything that the adversary knows, in the directions "
    "in which D and D' agree. They are noise of the claimed size if the mechanism is as claimed."
)

NEGLIGIBLE = 0.01
"""Share of the claimed noise below which the likely cause is that no noise was added."""

SAME = 0.5
"""Cosine between a residual and earlier ones above which they are likely the same noise."""

AS_CLAIMED = 0.8, 1.25
"""Range of measured over claimed noise in which a round's residuals are as long as noise."""

FIRST_LEVEL = 1e-3
"""p-value of the first round's sum above which that sum is taken as the expected one."""

LEVEL = 1 - ALARM_CONFIDENCE
SURE = f"p below {LEVEL:.2g}"
SHARED = "the rounds share their noise, as with a reused seed"


def report(scheme: Scheme, transcript: Arrays, confidence: float) -> Residuals | None:
    ending = suffix(Vantage.PARTICIPANT, scheme.federation.vantage)
    # `run_transcript` refuses a transcript with only some of these arrays.
    if any(f"residual_{name}{ending}" not in transcript for name in RESIDUALS):
        return None
    own_residuals = {name: transcript[f"residual_{name}{ending}"] for name in RESIDUALS}
    shapes = transcript.get(f"residual_shapes{ending}")
    noise = residuals.noise_test(own_residuals["squares"], own_residuals["freedoms"], confidence)
    if noise is None:
        return None
    repeats = residuals.direction_test(own_residuals["repeats"], own_residuals["squares"])
    scale = residuals.direction_test(own_residuals["scales"], own_residuals["squares"])
    # The first round has no earlier noise that it could repeat.
    first = residuals.direction_test(
        own_residuals["scales"][:, :1], own_residuals["squares"][:, :1]
    )
    # The weighted mean of scales/signals, with weights signals^2: the most precise estimate of how
    # much the sums exceed the expected ones.
    power = float(np.square(own_residuals["signals"]).sum())
    factor = (
        1 + float((own_residuals["scales"] * own_residuals["signals"]).sum()) / power
        if power
        else None
    )
    shape = None if shapes is None else residuals.shape_test(shapes, own_residuals["freedoms"])
    sampled = None
    if scheme.training.sampling_rate < 1:
        sampled = residuals.sampling_test(
            transcript[f"batch_sizes{ending}"],
            scheme.records - 1,
            scheme.training.sampling_rate,
        )
    return Residuals(
        noise=NoiseTestResult(
            ratio=noise.ratio,
            interval=noise.interval.ends,
            by_step=[None if math.isnan(step) else step for step in noise.by_step],
            p_value=noise.p_value,
            uneven=noise.uneven,
            degrees_of_freedom=noise.degrees_of_freedom,
        ),
        repeats=repeats,
        scale=None
        if scale is None
        else ScaleTest(
            **asdict(scale), factor=factor, first_p_value=None if first is None else first.p_value
        ),
        shape=shape,
        sampling=sampled,
        confidence=confidence,
        note=MEANING,
    )


def checks(tested: Residuals | None) -> list[AlarmCheck]:
    """Return the check of each test that could be made."""
    if tested is None:
        return []
    made: dict[str, tuple[Any, Callable[[Residuals], str]]] = {
        "residual_noise": (tested.noise, _of_noise),
        "residual_repeats": (tested.repeats, _of_repeats),
        "residual_scale": (tested.scale, _of_scale),
        "residual_shape": (tested.shape, _of_shape),
        "sampling": (tested.sampling, _of_sampling),
    }
    return [
        AlarmCheck(name, worded(tested) if test.p_value < LEVEL else None)
        for name, (test, worded) in made.items()
        if test is not None
    ]


def ratio_text(ratio: float) -> str:
    return f"{ratio:.5g}"


def _noise_is_shared(tested: Residuals) -> bool:
    """Return whether residuals that lean the same way are noise that was drawn once.

    A bias that is large beside the noise also makes them lean. But if only the noise repeats, the
    sum of the first round is as expected, and residuals are as long in all rounds as claimed.
    """
    if tested.repeats is None or tested.repeats.cosine <= SAME:
        return False
    low, high = AS_CLAIMED
    steps = [step for step in tested.noise.by_step if step is not None]
    first = tested.scale.first_p_value if tested.scale else None
    return all(low < step < high for step in steps) and (first is None or first > FIRST_LEVEL)


def _of_noise(tested: Residuals) -> str:
    noise, by_step = tested.noise, np.asarray(tested.noise.by_step, float)
    without = np.flatnonzero(by_step < NEGLIGIBLE)
    if len(without) == len(by_step):
        cause = "no noise was added at all"
    elif len(without):
        named = ", ".join(str(step + 1) for step in without[:5])
        more = " and others" if len(without) > 5 else ""
        cause = f"no noise was added in round {named}{more}"
    elif noise.uneven:
        cause = (
            f"it differs by round, from {np.nanmin(by_step):.3g} to {np.nanmax(by_step):.3g} "
            "times; rounds with less noise protect a record less than was accounted for"
        )
    elif noise.ratio < 1:
        cause = "less noise was added than was accounted for"
    else:
        cause = (
            "there is more noise than claimed, or the sum contains more than the clipped gradients"
        )
    return f"The noise is {noise.ratio:.3g} times the claimed noise ({SURE}): {cause}."


def _of_repeats(tested: Residuals) -> str:
    shared = _noise_is_shared(tested)
    cause = SHARED if shared else "the sums of all rounds share the same error"
    return f"The residuals of several rounds point in the same direction ({SURE}): {cause}."


def _of_scale(tested: Residuals) -> str:
    factor = None if tested.scale is None else tested.scale.factor
    cause = "gradients were weighted, or were not clipped one by one over all parameters"
    if _noise_is_shared(tested):
        # Noise of earlier rounds moved the models, and with them the gradients.
        cause = SHARED
    elif factor is not None and factor < 0.5:
        cause = "a mean was sent instead of a sum, or gradients were clipped to less"
    return f"The sum is {factor:.3g} times the sum of clipped gradients ({SURE}): {cause}."


def _of_shape(tested: Residuals) -> str:
    shape = tested.shape
    assert shape is not None
    cause = "Truncated or uniform noise would explain this"
    if shape.ratio < shape.normal:
        cause = "Laplace noise, or coordinates without noise, would explain this"
    return (
        f"The noise is not Gaussian ({SURE}): the mean size of a coordinate is {shape.ratio:.4g} "
        f"of its root mean square, but {shape.normal:.4g} for normal noise. {cause}."
    )


def _of_sampling(tested: Residuals) -> str:
    sampling = tested.sampling
    assert sampling is not None
    cause = "The sampling rate is not the one that was accounted for"
    if sampling.dispersion < 0.5:
        cause = "Shuffled batches of one size would explain this, which no accountant here covers"
    return (
        f"Batches are not Poisson samples ({SURE}): the variance of their sizes is "
        f"{sampling.dispersion:.3g} of the binomial's, and a share {sampling.rate:.4g} of "
        f"the records took part. {cause}."
    )
