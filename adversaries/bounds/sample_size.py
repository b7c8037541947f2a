"""The number of trials that a statement needs, from the expected advantage."""

import math
from collections.abc import Callable

import numpy as np
from scipy.stats import binom

from adversaries.errors import InputError
from adversaries.statistics.intervals import binomial_high, binomial_low, significance

MOST_TRIALS = 10**7
"""Largest number of trials that is considered; a request for more is refused."""

NEGLIGIBLE = 1e-9
"""Probability beyond each end of the window of counts that an expectation covers."""


def expected_halfwidth(advantage: float, trials: int, confidence: float) -> float:
    """Return half of the expected length of the advantage's interval.

    It is the interval of `adversaries.statistics.estimators.advantage` after trials in both worlds,
    each won with probability (1 + advantage)/2.

    Args:
        advantage: expected, in (-1, 1).
        trials: an even number of at least 2.
        confidence: in (0, 1).

    Raises InputError for advantage, confidence or number of trials out of range.
    """
    _check(advantage, confidence)
    if trials < 2 or trials % 2:
        raise InputError(f"trials are {trials}; give an even number of at least 2")
    chance = (1 + abs(advantage)) / 2
    # Only counts that matter: the window leaves out a negligible probability at each end.
    least, most = binom.ppf(NEGLIGIBLE, trials, chance), binom.isf(NEGLIGIBLE, trials, chance)
    counts = np.arange(least, most + 1)
    weights = binom.pmf(counts, trials, chance)
    tail = significance(confidence) / 2
    low, high = (limit(counts, trials, tail) for limit in (binomial_low, binomial_high))
    # The interval of the share of wins is half as wide as the advantage's.
    return float(np.average(high - low, weights=weights))


def trials_needed(advantage: float, halfwidth: float, confidence: float) -> int:
    """Return the even number of trials from which on `expected_halfwidth` is small enough.

    Args:
        advantage: expected, in (-1, 1).
        halfwidth: wanted, in (0, 1).
        confidence: in (0, 1).

    Raises InputError for numbers out of range, or for more than `MOST_TRIALS`.
    """
    _check(advantage, confidence)
    if not 0 < halfwidth < 1:
        raise InputError(f"the halfwidth is {halfwidth}; give a number between 0 and 1, like 0.05")
    return _turning_point(
        lambda trials: expected_halfwidth(advantage, trials, confidence) <= halfwidth,
        MOST_TRIALS,
        f"a halfwidth of {halfwidth:g}",
    )


def _turning_point(enough: Callable[[int], bool], most: int, goal: str) -> int:
    """Return an even number that is enough where two fewer are not, by bisection."""
    high = 2
    while not enough(high):
        # More trials are better, so doubling brackets the turning point.
        high *= 2
        if high > most:
            raise InputError(f"{goal} takes more than {most} trials; ask for less precision")
    low = high // 2
    while high - low > 2:
        middle = (low + high) // 4 * 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _check(advantage: float, confidence: float) -> None:
    if not -1 < advantage < 1 or math.isnan(advantage):
        raise InputError(f"the advantage is {advantage}; give a number between -1 and 1, like 0.3")
    significance(confidence)
