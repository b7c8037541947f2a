"""The number of trials that a statement needs, from the expected advantage."""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import ndtri
from scipy.stats import binom

from adversaries.arrays import Bools, Floats
from adversaries.bounds.lower_bounds import LOWER_BOUNDS
from adversaries.errors import InputError
from adversaries.statistics.intervals import Interval, binomial_high, binomial_low, significance

MOST_TRIALS = 10**7
"""Largest number of trials that is considered; a request for more is refused."""

MOST_FOR_EPSILON = 2**15
"""Largest number of trials that is tried for lower bounds on epsilon."""

POWER = 0.8
"""Probability with which the named number of trials reaches its goal."""

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


def interval_at(advantage: float, trials: int, confidence: float) -> Interval:
    """Return the interval of the advantage if exactly this advantage is measured.

    Args:
        advantage: in [-1, 1].
        trials: an even number of at least 2.
        confidence: in (0, 1).

    Raises InputError for confidence out of range.
    """
    tail = significance(confidence) / 2
    wins = trials * (1 + advantage) / 2
    low, high = (limit(wins, trials, tail) for limit in (binomial_low, binomial_high))
    return Interval(2 * float(low) - 1, 2 * float(high) - 1, confidence)


def trials_to_tell(advantage: float, limit: float, confidence: float) -> int:
    """Return the number of trials that separate an advantage from a limit with probability `POWER`.

    Args:
        advantage: the measured advantage, in [-1, 1], taken as the true one.
        limit: the limit that the interval must exclude, in (-1, 1).
        confidence: of the interval, in (0, 1).

    Returns: the even number from which on the interval excludes the limit, if luck is as bad as in
    the worst 1 - `POWER` of all campaigns.
    Raises InputError for more than `MOST_TRIALS`, for example where the advantage is the limit.
    """
    above = advantage > limit

    def separated(trials: int) -> bool:
        unlucky = _unlucky(advantage, trials, fewer=above)
        interval = interval_at(unlucky, trials, confidence)
        return interval.low > limit if above else interval.high < limit

    return _turning_point(separated, MOST_TRIALS, f"separating {advantage:g} from {limit:g}")


def _unlucky(advantage: float, trials: int, fewer: bool) -> float:
    """Return the measured advantage at the quantile of bad luck that `POWER` still covers."""
    quantile = 1 - POWER if fewer else POWER
    return 2 * float(binom.ppf(quantile, trials, (1 + advantage) / 2)) / trials - 1


def unlucky(mu: float, trials: int) -> tuple[Bools, Floats]:
    """Return worlds and log-odds [T] of a campaign that measures mu too small by bad luck.

    The log-odds are at their quantiles, but the worlds are nearer to each other, as in the worst 1
    - `POWER` of all campaigns: the standard error of their difference is sqrt(4/T + mu^2/(2 T)).

    Args:
        mu: of the log-odds, N(+-mu^2/2, mu^2) in either world.
        trials: T, an even number; each world has quantiles at (i - 1/2)/(T/2).
    """
    quantiles = mu * ndtri((np.arange(trials // 2) + 0.5) / (trials // 2))
    worlds = np.arange(trials) % 2 == 0
    # The standardised distance of the worlds is normal with this error; `POWER` of all campaigns
    # measure more than mu - nearer.
    nearer = float(ndtri(POWER)) * math.sqrt((4 + mu**2 / 2) / trials)
    # Log-odds have standard deviation mu, and their means are half of the distance off 0.
    middle = mu * (mu - nearer) / 2
    return worlds, np.where(worlds, middle, -middle) + np.repeat(quantiles, 2)


def trials_for_epsilon(
    bound: str, mu: float, epsilon: float, delta: float, confidence: float
) -> int | None:
    """Return about how many trials a lower bound needs to reach an epsilon with `POWER`.

    Args:
        bound: its name in `LOWER_BOUNDS`.
        mu: of the log-odds, N(+-mu^2/2, mu^2).
        epsilon: wanted, > 0.
        delta: of the bound.
        confidence: of the bound, in (0, 1).

    Returns: an even number that suffices, where two fewer do not. Bounds from counts move in steps:
    a smaller number may suffice too. None where the bound fails with `MOST_FOR_EPSILON` trials.
    Raises InputError for delta or confidence out of range.
    """
    function = LOWER_BOUNDS[bound].bound

    def reached(trials: int) -> bool:
        return function(*unlucky(mu, trials), delta, confidence).epsilon >= epsilon

    if not reached(MOST_FOR_EPSILON):
        return None
    return _turning_point(reached, MOST_FOR_EPSILON, f"epsilon {epsilon:g}")


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
