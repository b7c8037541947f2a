"""Canaries: updates in random directions, whose trace in the aggregate measures the noise.

By a fair coin a client sends a loud canary (u, as long as clipping allows) or a quiet one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Bools, Floats
from adversaries.bounds.gaussian_bounds import LARGEST_EFFECT
from adversaries.statistics.intervals import Interval, significance
from adversaries.statistics.noncentral import lower_limit, upper_limit

Arrays = Mapping[str, npt.NDArray[Any]]


def vector(arrays: Arrays) -> Floats:
    """Return the floating-point arrays of a model as one float64 vector [P], in their order."""
    parts = [array.ravel() for array in arrays.values() if array.dtype.kind == "f"]
    return np.concatenate([np.zeros(0), *parts], dtype=np.float64)


@dataclass(frozen=True)
class Effect:
    """The signal-to-noise ratio mu of one release, from scores on either side of the coin.

    Attributes:
        mu: the difference of the mean scores over their common standard deviation; NaN if unknown.
        interval: two-sided, for mu >= 0; [0, 0] where loud rounds score lower than quiet ones.
        reason: why there is no estimate, else None.
    """

    mu: float
    interval: Interval
    reason: str | None = None


def effect(coins: Bools, scores: Floats, confidence: float) -> Effect:
    """Estimate mu = (difference of the mean scores) / (their common standard deviation).

    The two-sample t statistic is noncentral t with noncentrality mu / sqrt(1/n1 + 1/n0) where the
    scores are normal with one variance. The interval inverts it at alpha/2 on each side.

    Args:
        coins: bool [k], True for a loud round.
        scores: float64 [k], how far the aggregate moved along each round's canary.
        confidence: of the interval, in (0, 1).

    Returns:
        mu and its interval; with a reason, and the interval [0, inf), where a side has fewer than
        two rounds or the scores do not vary.

    Raises InputError for confidence out of range.
    Source: Hedges, "Distribution theory for Glass's estimator of effect size", 1981.
    """
    tail = significance(confidence) / 2
    loud, quiet = scores[coins], scores[~coins]
    nothing = Interval(0.0, math.inf, confidence)
    if min(loud.size, quiet.size) < 2:
        return Effect(math.nan, nothing, "fewer than two rounds on one side of the coin")
    # The standard deviation common to both sides.
    freedom = scores.size - 2
    spread = math.sqrt((loud.size * loud.var() + quiet.size * quiet.var()) / freedom)
    difference = float(loud.mean() - quiet.mean())
    if spread == difference == 0:
        return Effect(0.0, nothing, "scores that do not vary")
    # Almost no noise: more than can be resolved, or in the wrong direction.
    if spread <= 1e-9 * abs(difference):
        ends = (LARGEST_EFFECT, math.inf) if difference > 0 else (0.0, 0.0)
        return Effect(math.copysign(math.inf, difference), Interval(*ends, confidence))
    # Invert noncentral t at both ends; beyond `LARGEST_EFFECT` the upper end is infinite.
    scale = math.sqrt(1 / loud.size + 1 / quiet.size)
    statistic = difference / spread / scale
    limited = min(statistic, LARGEST_EFFECT / scale)
    low = lower_limit(limited, freedom, tail)
    high = math.inf if limited < statistic else upper_limit(limited, freedom, tail)
    interval = Interval(low * scale, high * scale, confidence)
    return Effect(difference / spread, interval)
