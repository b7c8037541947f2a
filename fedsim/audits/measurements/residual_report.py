"""Tests of the residuals of a run: whether the aggregates are what the mechanism claims.

Outside the one direction in which the worlds differ, the adversary expects noise alone. The sizes
of the batches are tested too.
"""

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from adversaries.attacks import residuals
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.results.measured import NoiseTestResult, Residuals, ScaleTest
from fedsim.audits.results.verdicts import Checks
from fedsim.configuration import Config
from fedsim.federation.runs.run_directory import Arrays
from fedsim.federation.runs.run_transcript import RESIDUALS
from fedsim.game.mechanisms.vantages import suffix
from fedsim.privacy.trust import Vantage

MEANING = (
    "Residuals are the aggregates minus everything that the adversary knows, in the directions "
    "in which D and D' agree. They are noise of the claimed size if the mechanism is as claimed."
)

LEVEL = 1 - ALARM_CONFIDENCE
SURE = f"p below {LEVEL:.2g}"

ALARMS = {
    "residual_noise": "The noise is {0.noise.ratio:.3g} times the claimed noise "
    f"({SURE}), {{1:.3g}} to {{2:.3g}} times in a round. Rounds or parts without noise, another "
    "amount of noise, or a sum of more than the clipped gradients would explain this.",
    "residual_repeats": f"The residuals of several rounds point in the same direction ({SURE}): "
    "the rounds share their noise, as with a reused seed, or their sums share an error.",
    "residual_scale": "The sum is {0.scale.factor:.3g} times the sum of clipped gradients "
    f"({SURE}): gradients were weighted, averaged, or not clipped one by one over all parameters, "
    "or the rounds share their noise.",
    "residual_shape": f"The noise is not Gaussian ({SURE}): the mean size of a coordinate is "
    "{0.shape.ratio:.4g} of its root mean square, but {0.shape.normal:.4g} for normal noise.",
    "sampling": f"Batches are not Poisson samples ({SURE}): the variance of their sizes is "
    "{0.sampling.dispersion:.3g} of the binomial's, and a share {0.sampling.rate:.4g} of the "
    "records took part. No accountant here covers another sampling, or another rate.",
}
"""The alarm of each test: {0} has the tests, {1} and {2} the least and most noise of a round."""


def report(config: Config, transcript: Arrays, confidence: float) -> Residuals | None:
    ending = suffix(Vantage.PARTICIPANT, config.federation.vantage)
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
    if config.training.sampling_rate < 1:
        sampled = residuals.sampling_test(
            transcript[f"batch_sizes{ending}"],
            config.data.records - 1,
            config.training.sampling_rate,
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
        scale=None if scale is None else ScaleTest(**asdict(scale), factor=factor),
        shape=shape,
        sampling=sampled,
        confidence=confidence,
        note=MEANING,
    )


def checks(tested: Residuals | None) -> Checks:
    """Return the check of each test that could be made."""
    if tested is None:
        return {}
    made: dict[str, Any] = {
        "residual_noise": tested.noise,
        "residual_repeats": tested.repeats,
        "residual_scale": tested.scale,
        "residual_shape": tested.shape,
        "sampling": tested.sampling,
    }
    steps = [step for step in tested.noise.by_step if step is not None]
    ends = min(steps, default=tested.noise.ratio), max(steps, default=tested.noise.ratio)
    return {
        name: ALARMS[name].format(tested, *ends) if test.p_value < LEVEL else ""
        for name, test in made.items()
        if test is not None
    }


def ratio_text(ratio: float) -> str:
    return f"{ratio:.5g}"
