"""How many trials a statement needs: before they are run, from the advantage that is expected."""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import ndtri
from scipy.stats import binom

from adversaries.errors import InputError
from adversaries.statistics import stopping
from adversaries.statistics.design import INDEPENDENT, WON_SHARE, Design
from adversaries.statistics.intervals import Interval, binomial_high, binomial_low, significance
from adversaries.statistics.lower_bounds import LOWER_BOUNDS
from adversaries.statistics.trials import Bools, Floats

MOST_TRIALS = 10**7
"""Nobody plays more; a request for more is refused."""

MOST_FOR_EPSILON = 2**15
"""Lower bounds on epsilon are looked for with no more trials than these."""

POWER = 0.8
"""With which as many trials as are named tell what they are to tell."""

NEGLIGIBLE = 1e-9
"""Counts outside of a window of this probability at either end are left out of an expectation."""


def expected_halfwidth(
    advantage: float, trials: int, confidence: float, design: Design = INDEPENDENT
) -> float:
    """Return what half the length of the advantage's interval will be, on average.

    Of `adversaries.statistics.estimators.advantage` after trials in both worlds, of which one is
    won with probability (1 + advantage)/2: the mean over how many may be won. From another prior
    than 1/2 one world is won more often than the other; then this is the length at the same mean,
    about which the wins vary less. With common random numbers the two trials of a pair are both won
    with probability `advantage` and else one each, as for normal log-odds from any prior
    (`fedsim.audits.run.campaign.variance_ratio`).

    Args:
        advantage: that is expected, in (-1, 1).
        trials: an even number of at least 2.
        confidence: in (0, 1).
        design: how the trials are played.

    Raises:
        InputError: an impossible advantage, confidence or number of trials.
    """
    _check(advantage, confidence)
    if trials < 2 or trials % 2:
        raise InputError(f"trials are {trials}; give an even number of at least 2")
    size, chance, level = trials, (1 + abs(advantage)) / 2, design.level(confidence)
    alpha = 1 - level
    if design.common:
        size, chance, level = trials // 2, abs(advantage), 1 - WON_SHARE * alpha
    counts = np.arange(binom.ppf(NEGLIGIBLE, size, chance), binom.isf(NEGLIGIBLE, size, chance) + 1)
    weights = binom.pmf(counts, size, chance)
    tail = significance(level) / 2
    low, high = (limit(counts, size, tail) for limit in (binomial_low, binomial_high))
    if not design.common:
        # Of the share of wins; the advantage is twice as wide, and this is half of that.
        return float(np.average(high - low, weights=weights))
    worse = float(binomial_high(0, size, (1 - WON_SHARE) * alpha / 2))
    return (float(np.average(high - low, weights=weights)) + worse) / 2


def trials_needed(
    advantage: float, halfwidth: float, confidence: float, design: Design = INDEPENDENT
) -> int:
    """Return the even number of trials from which on `expected_halfwidth` is small enough.

    Args:
        advantage: that is expected, in (-1, 1).
        halfwidth: that is asked for, in (0, 1).
        confidence: in (0, 1).
        design: how the trials are played.

    Raises:
        InputError: unless 0 < halfwidth < 1; more than `MOST_TRIALS`; as of `expected_halfwidth`.
    """
    _check(advantage, confidence)
    if not 0 < halfwidth < 1:
        raise InputError(f"the halfwidth is {halfwidth}; give a number between 0 and 1, like 0.05")
    return _turning_point(
        lambda trials: expected_halfwidth(advantage, trials, confidence, design) <= halfwidth,
        MOST_TRIALS,
        f"a halfwidth of {halfwidth:g}",
    )


def interval_at(
    advantage: float, trials: int, confidence: float, design: Design = INDEPENDENT
) -> Interval:
    """Return the interval of the advantage if just this advantage is measured.

    Of `adversaries.statistics.estimators.advantage` after trials in both worlds without a tie. With
    common random numbers pairs are won twice or else once, as of `expected_halfwidth`.

    Args:
        advantage: in [-1, 1].
        trials: an even number of at least 2.
        confidence: in (0, 1).
        design: how the trials are played.

    Raises:
        InputError: an impossible confidence.
    """
    alpha = significance(design.level(confidence))
    if not design.common:
        wins = trials * (1 + advantage) / 2
        low, high = (limit(wins, trials, alpha / 2) for limit in (binomial_low, binomial_high))
        return Interval(2 * float(low) - 1, 2 * float(high) - 1, confidence)
    pairs = trials // 2
    # Of the better and the worse of both outcomes, as `design.paired_interval` has them.
    both, neither = (
        [
            float(limit(pairs * max(0.0, sign * advantage), pairs, share * alpha / 2))
            for limit in (binomial_low, binomial_high)
        ]
        for sign, share in ((1, WON_SHARE), (-1, 1 - WON_SHARE))
    )
    return Interval(both[0] - neither[1], both[1] - neither[0], confidence)


def trials_to_tell(
    advantage: float, limit: float, confidence: float, design: Design = INDEPENDENT
) -> int:
    """Return how many trials tell, with probability `POWER`, on which side of a limit one is.

    Args:
        advantage: as it was measured, in [-1, 1], and as it is taken to be in truth.
        limit: that the interval is to lie above or below of, in (-1, 1).
        confidence: of the interval, in (0, 1).
        design: how the trials are played.

    Returns:
        The even number from which on the interval leaves the limit out, of trials that are won as
        seldom (or often, where the limit lies above) as happens with probability 1 - `POWER`.

    Raises:
        InputError: more than `MOST_TRIALS`, as where the advantage is the limit.
    """
    above = advantage > limit

    def told(trials: int) -> bool:
        unlucky = _unlucky(advantage, trials, design, fewer=above)
        found = interval_at(unlucky, trials, confidence, design)
        return found.low > limit if above else found.high < limit

    return _turning_point(told, MOST_TRIALS, f"telling {advantage:g} from {limit:g}")


def _unlucky(advantage: float, trials: int, design: Design, fewer: bool) -> float:
    """Return the advantage that is measured without the luck of 1 - `POWER` of all campaigns."""
    quantile = 1 - POWER if fewer else POWER
    if not design.common:
        return 2 * float(binom.ppf(quantile, trials, (1 + advantage) / 2)) / trials - 1
    pairs, sign = trials // 2, math.copysign(1.0, advantage)
    quantile = quantile if advantage >= 0 else 1 - quantile
    return sign * float(binom.ppf(quantile, pairs, abs(advantage))) / pairs


def expected_stop(
    advantage: float, halfwidth: float, confidence: float, batch: int, common: bool
) -> int:
    """Return the first interim analysis at which `expected_halfwidth` is at most `halfwidth`.

    That is where trials that stop by what they show (`adversaries.statistics.stopping`) usually do.

    Args:
        advantage: that is expected, in (-1, 1).
        halfwidth: that is asked for, in (0, 1).
        confidence: in (0, 1).
        batch: trials that are run together, an even number.
        common: whether the two trials of a pair share their random numbers.

    Raises:
        InputError: as of `trials_needed`.
    """
    _check(advantage, confidence)
    planned = stopping.interim_analyses(halfwidth, confidence, MOST_TRIALS, batch, common)
    for analysis, share in planned.items():
        found = expected_halfwidth(advantage, analysis, confidence, Design(common, share))
        if found <= halfwidth:
            break
    return analysis


def unlucky(mu: float, trials: int) -> tuple[Bools, Floats]:
    """Return worlds and log-odds [T] of a campaign whose mu is measured too small by bad luck.

    Each at its quantile, but the worlds nearer to each other by as much as they are in 1 - `POWER`
    of all campaigns: the standard error of the standardised difference is sqrt(4/T + mu^2/(2 T)).

    Args:
        mu: of the log-odds, N(+-mu^2/2, mu^2) in either world.
        trials: T, an even number; each world has them at the probabilities (i - 1/2)/(T/2).
    """
    quantiles = mu * ndtri((np.arange(trials // 2) + 0.5) / (trials // 2))
    worlds = np.arange(trials) % 2 == 0
    nearer = float(ndtri(POWER)) * math.sqrt((4 + mu**2 / 2) / trials)
    middle = mu * (mu - nearer) / 2
    return worlds, np.where(worlds, middle, -middle) + np.repeat(quantiles, 2)


def trials_for_epsilon(
    bound: str, mu: float, epsilon: float, delta: float, confidence: float
) -> int | None:
    """Return about how many trials a lower bound needs to reach an epsilon with `POWER`.

    Args:
        bound: its name in `LOWER_BOUNDS`.
        mu: of the log-odds, N(+-mu^2/2, mu^2).
        epsilon: that the bound is to reach, > 0.
        delta: of the bound.
        confidence: of the bound, in (0, 1).

    Returns:
        An even number that does, where two fewer do not. Bounds from counts go up and down in steps
        on their way: a smaller number may do too, and a larger one not. None where the bound does
        not get there in `MOST_FOR_EPSILON` trials: one that counts decisions at the threshold 0
        never sees the tail.

    Raises:
        InputError: as of the bound.
    """
    function = LOWER_BOUNDS[bound].bound

    def reached(trials: int) -> bool:
        return function(*unlucky(mu, trials), delta, confidence).epsilon >= epsilon

    if not reached(MOST_FOR_EPSILON):
        return None
    return _turning_point(reached, MOST_FOR_EPSILON, f"epsilon {epsilon:g}")


def _turning_point(enough: Callable[[int], bool], most: int, what: str) -> int:
    """Return an even number that is enough where two fewer are not, by bisection.

    The smallest of all where more is never less. Raises InputError.
    """
    high = 2
    while not enough(high):
        high *= 2
        if high > most:
            raise InputError(f"{what} takes more than {most} trials; ask for less precision")
    low = high // 2
    while high - low > 2:
        middle = (low + high) // 4 * 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _check(advantage: float, confidence: float) -> None:
    if not -1 < advantage < 1 or math.isnan(advantage):
        raise InputError(f"the advantage is {advantage}; give a number between -1 and 1, like 0.3")
    significance(confidence)
