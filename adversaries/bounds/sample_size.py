"""The number of trials that a precision of the advantage needs."""

import math
from bisect import bisect_left

from adversaries.errors import InputError
from adversaries.statistics.intervals import binomial_high, binomial_low, significance

MOST_TRIALS = 10**7
"""Largest number of trials that is considered; a request for more is refused."""


def expected_halfwidth(advantage: float, trials: int, confidence: float) -> float:
    """Return half of the length of the advantage's interval, at the expected number of wins.

    It is the interval of `adversaries.statistics.estimators.advantage` after trials in both worlds,
    each won with probability (1 + advantage)/2.

    Args:
        advantage: expected, in (-1, 1).
        trials: number of trials, at least 1.
        confidence: in (0, 1).
    """
    wins = trials * (1 + abs(advantage)) / 2
    tail = significance(confidence) / 2
    # The interval of the share of wins is half as wide as the advantage's.
    return float(binomial_high(wins, trials, tail) - binomial_low(wins, trials, tail))


def trials_needed(advantage: float, halfwidth: float, confidence: float) -> int:
    """Return the least even number of trials for which `expected_halfwidth` is small enough.

    Args:
        advantage: expected, in (-1, 1).
        halfwidth: wanted, in (0, 1).
        confidence: in (0, 1).

    Raises InputError for numbers out of range, or for more than `MOST_TRIALS`.
    """
    if not -1 < advantage < 1 or math.isnan(advantage):
        raise InputError(f"the advantage is {advantage}; give a number between -1 and 1, like 0.3")
    if not 0 < halfwidth < 1:
        raise InputError(f"the halfwidth is {halfwidth}; give a number between 0 and 1, like 0.05")
    even = range(2, MOST_TRIALS + 1, 2)
    place = bisect_left(
        even,
        True,
        key=lambda trials: expected_halfwidth(advantage, trials, confidence) <= halfwidth,
    )
    if place == len(even):
        raise InputError(
            f"a halfwidth of {halfwidth:g} takes more than {MOST_TRIALS} trials; ask for less "
            "precision"
        )
    return even[place]
