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
from adversaries.errors import InputError
from adversaries.statistics.intervals import Interval, significance
from adversaries.statistics.noncentral import lower_limit, upper_limit

Arrays = Mapping[str, npt.NDArray[Any]]


def direction(seed: int, size: int) -> Floats:
    """Return the unit vector [P] of a seed, uniform on the sphere.

    Args:
        seed: key of the Philox generator, >= 0.
        size: P, the number of floating-point parameters.

    Raises InputError if size is below 1.
    """
    if size < 1:
        raise InputError("the model has no floating-point parameters to hide a canary in")
    # A normalised normal vector is uniform on the sphere.
    drawn = np.random.Generator(np.random.Philox(key=seed)).standard_normal(size)
    return drawn / np.linalg.norm(drawn)


def displaced(arrays: Arrays, seed: int, length: float) -> dict[str, npt.NDArray[Any]]:
    """Return a model moved along the direction of a seed.

    Args:
        arrays: the model's arrays by name; arrays of other types than float stay unchanged.
        seed: of the direction, see `direction`.
        length: Euclidean length of the move, in the units of the parameters.

    Raises InputError if the model has no floating-point parameters.
    """
    unit = direction(seed, vector(arrays).size)
    moved, position = dict(arrays), 0
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            step = length * unit[position : position + array.size].reshape(array.shape)
            moved[name] = (array + step).astype(array.dtype)
            position += array.size
    return moved


def score(before: Arrays, after: Arrays, seed: int) -> float:
    """Return how far a model moved along the direction of a seed, in the units of its parameters.

    Args:
        before: the model's arrays by name.
        after: the same arrays later, in the same order.
        seed: of the direction, see `direction`.

    Raises InputError if the model has no floating-point parameters.
    """
    change = vector(after) - vector(before)
    return float(change @ direction(seed, change.size))


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
