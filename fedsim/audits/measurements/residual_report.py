"""What a report says of the residuals: whether the aggregates are what the mechanism claims.

Beside the one direction in which the worlds differ, the adversary expects noise and nothing else.
Tests of what it found there, with the cause that each points at, and of the batches' sizes.
"""

import math
from collections.abc import Callable
from dataclasses import asdict

import numpy as np

from adversaries.attacks import residuals
from adversaries.statistics.design import INDEPENDENT, Design
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.measurements.check import Check
from fedsim.audits.results.residuals import (
    DirectionTest,
    NoiseTest,
    Residuals,
    SamplingTest,
    ScaleTest,
    ShapeTest,
)
from fedsim.config.objects import Scheme
from fedsim.federation.runs.run_directory import Arrays
from fedsim.federation.runs.run_transcript import RESIDUALS
from fedsim.game.mechanisms.vantages import suffix
from fedsim.privacy.trust.model import Vantage

MEANING = (
    "What is left of every aggregate when all that the adversary knows is subtracted, in the "
    "directions in which D and D' agree: noise of the claimed size, if the mechanism is as claimed."
)

NEGLIGIBLE = 0.01
"""A share of the claimed noise, below which the likely cause is that there is none."""

SAME = 0.5
"""A cosine between a residual and those before it, from which they are likely one and the same."""

AS_CLAIMED = 0.8, 1.25
"""Noise over what is claimed, between which a round's residuals are as long as noise."""

FIRST_LEVEL = 1e-3
"""A p-value of the first round's sum from which on that sum is taken for the one expected."""

SHARED = "rounds share their noise, as with a seed that is used again"


def report(
    scheme: Scheme, transcript: Arrays, confidence: float, played: Design = INDEPENDENT
) -> Residuals | None:
    """Return the tests of a run's residuals; None where the adversary formed none.

    The interval holds with this confidence at whichever analysis of a design the trials stopped.
    Shape is None where the transcript does not have it, sampling where every record takes part in
    every round.
    """
    ending = suffix(Vantage.PARTICIPANT, scheme.federation.vantage)
    # `run_transcript` refuses one that lacks an array of an adversary who forms them.
    if any(f"residual_{name}{ending}" not in transcript for name in RESIDUALS):
        return None
    # Of two trials with the same noise, one says it all.
    apart = slice(None, None, 2 if played.common else 1)
    seen = {name: transcript[f"residual_{name}{ending}"][apart] for name in RESIDUALS}
    shapes = transcript.get(f"residual_shapes{ending}")
    level = played.level(confidence)
    noise = residuals.noise_test(seen["squares"], seen["freedoms"], level)
    if noise is None:
        return None
    repeats = residuals.direction_test(seen["repeats"], seen["squares"])
    scale = residuals.direction_test(seen["scales"], seen["squares"])
    # Of the first round alone, before which there was no noise to repeat.
    first = residuals.direction_test(seen["scales"][:, :1], seen["squares"][:, :1])
    power = float(np.square(seen["signals"]).sum())
    factor = 1 + float((seen["scales"] * seen["signals"]).sum()) / power if power else None
    shape = None if shapes is None else residuals.shape_test(shapes[apart], seen["freedoms"])
    sampled = None
    if scheme.training.sampling_rate < 1:
        sampled = residuals.sampling_test(
            transcript[f"batch_sizes{ending}"][apart],
            scheme.records - 1,
            scheme.training.sampling_rate,
        )
    return Residuals(
        noise=NoiseTest(
            ratio=noise.ratio,
            interval=(noise.interval.low, noise.interval.high),
            by_step=[None if math.isnan(step) else step for step in noise.by_step],
            p_value=noise.p_value,
            uneven=noise.uneven,
            degrees_of_freedom=noise.degrees_of_freedom,
        ),
        repeats=None if repeats is None else DirectionTest(**asdict(repeats)),
        scale=None
        if scale is None
        else ScaleTest(
            **asdict(scale),
            factor=factor,
            first_p_value=None if first is None else first.p_value,
        ),
        shape=None if shape is None else ShapeTest(**asdict(shape)),
        sampling=None if sampled is None else SamplingTest(**asdict(sampled)),
        confidence=confidence,
        note=MEANING,
    )


def checks(found: Residuals | None, played: Design = INDEPENDENT) -> list[Check]:
    """Return the check of every test that was made; each alarm names the likely cause."""
    if found is None:
        return []
    level = 1 - played.level(ALARM_CONFIDENCE)
    sure = f"p below {level:.2g}"

    def check(name: str, p_value: float, worded: Callable[[], str]) -> Check:
        return Check(name, worded() if p_value < level else None)

    noise, repeats, scale = found.noise, found.repeats, found.scale
    shape, sampling = found.shape, found.sampling
    made = [check("residual_noise", noise.p_value, lambda: _of_noise(noise, sure))]
    if repeats is not None:
        made.append(check("residual_repeats", repeats.p_value, lambda: _of_repeats(found, sure)))
    if scale is not None:
        made.append(check("residual_scale", scale.p_value, lambda: _of_scale(found, scale, sure)))
    if shape is not None:
        made.append(check("residual_shape", shape.p_value, lambda: _of_shape(shape, sure)))
    if sampling is not None:
        made.append(check("sampling", sampling.p_value, lambda: _of_sampling(sampling, sure)))
    return made


def ratio_text(ratio: float) -> str:
    """Return a ratio in words that is known to four digits and more."""
    return f"{ratio:.5g}"


def _noise_is_shared(found: Residuals) -> bool:
    """Whether residuals that lean the same way are noise that was drawn once.

    A bias that is large beside the noise does that too. But where noise alone is repeated the sum
    of the first round is in order, and residuals are as long in all rounds as the noise claimed.
    """
    if found.repeats is None or found.repeats.cosine <= SAME:
        return False
    low, high = AS_CLAIMED
    known = [step for step in found.noise.by_step if step is not None]
    first = found.scale.first_p_value if found.scale else None
    return all(low < step < high for step in known) and (first is None or first > FIRST_LEVEL)


def _of_noise(noise: NoiseTest, sure: str) -> str:
    by_step = np.asarray(noise.by_step, float)
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
            "times; where it is less, a record is hidden less than is accounted for"
        )
    elif noise.ratio < 1:
        cause = "less noise was added than is accounted for"
    else:
        cause = (
            "there is more noise than claimed, or the sum holds something else than the clipped "
            "gradients that it should"
        )
    return f"The noise is {noise.ratio:.3g} times what is claimed ({sure}): {cause}."


def _of_repeats(found: Residuals, sure: str) -> str:
    cause = "the sum is off by something that is alike in all rounds"
    if _noise_is_shared(found):
        cause = SHARED
    return f"What the noise should hide leans the same way in several rounds ({sure}): {cause}."


def _of_scale(found: Residuals, scale: ScaleTest, sure: str) -> str:
    factor = scale.factor
    if _noise_is_shared(found):
        # The noise of earlier rounds moved the models that the gradients are of.
        cause = SHARED
    elif factor is not None and factor < 0.5:
        cause = "a mean was sent in place of a sum, or gradients were clipped to less"
    else:
        cause = "gradients were weighted, or not clipped one by one over all parameters"
    return (
        f"The sum is {factor:.3g} times the sum of clipped gradients that it should be ({sure}): "
        f"{cause}."
    )


def _of_shape(shape: ShapeTest, sure: str) -> str:
    cause = "Tails that are cut, or those of uniform noise, do that"
    if shape.ratio < shape.normal:
        cause = "Heavier tails, as of Laplace's noise, or noise that some coordinates lack do that"
    return (
        f"The noise is not Gaussian ({sure}): the mean size of a coordinate is "
        f"{shape.ratio:.4g} of its root mean square, {shape.normal:.4g} if normal. {cause}."
    )


def _of_sampling(sampling: SamplingTest, sure: str) -> str:
    cause = "The sampling rate is not the one that is accounted for"
    if sampling.dispersion < 0.5:
        cause = "Shuffled batches of a fixed size do that, for which no accountant here holds"
    return (
        f"Batches are not Poisson samples ({sure}): the variance of their sizes is "
        f"{sampling.dispersion:.3g} of the binomial's, and a share {sampling.rate:.4g} of "
        f"the records took part. {cause}."
    )
