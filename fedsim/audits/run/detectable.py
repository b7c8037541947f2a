"""The smallest shortfall of the noise that an audit would have detected with probability 95 %.

An audit without an alarm shows only what it could have detected. Each function takes the statistic
of one kind of alarm, and returns a share f of the claimed noise. Noise with f times the claimed
standard deviation, or less, would have raised the alarm with probability `POWER`. A share of 0
means that the audit can detect no shortfall. Runs, apps, transcripts and live audits report it.
"""

import math

from scipy.special import bdtr, gammaincinv, ndtri

from adversaries.statistics.intervals import binomial_low
from adversaries.statistics.noise_limit import RATIOS
from adversaries.statistics.roots import find_root

POWER = 0.95
"""Probability with which the audit would have raised its alarm."""

HALF = 0.5
"""Share of the claimed noise below which an audit should notice the shortfall."""


def by_energy(freedom: float, tail: float, beside: float = 0.0) -> float:
    """Return the share for an alarm at a small sum of squares.

    The squares of the noise over its claimed variance sum to f^2 times a chi-square variable. The
    alarm is raised where the sum is below the quantile `tail` of the claimed noise.
    """
    if freedom <= 0:
        return 0.0
    half = freedom / 2
    share = float(gammaincinv(half, tail) / gammaincinv(half, POWER))
    return math.sqrt(max(0.0, share - beside))


def by_wins(signal: float, limit: float, trials: int, tail: float) -> float:
    """Return the share for an alarm at a large number of won trials.

    The log-odds are N(+-mu^2/2, mu^2) under the claimed noise; noise f makes mu mu/f. The alarm is
    raised where Clopper and Pearson's lower limit of the advantage is above `limit`.
    """

    def alarms(wins: int) -> bool:
        return 2 * float(binomial_low(wins, trials, tail)) - 1 > limit

    if not 0 < signal < math.inf or not alarms(trials):
        return 0.0
    low, high = 0, trials  # bisection for the smallest number of wins that raises the alarm
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if alarms(middle) else (middle + 1, high)
    # The rate of wins at which fewer wins than these have probability 1 - POWER.
    chance = find_root(lambda p: float(bdtr(low - 1, trials, p)) - (1 - POWER), 0.0, 1.0)
    needed = 2 * float(ndtri(chance))
    return min(1.0, signal / needed) if needed > 0 else 0.0


def by_limit(limit: float) -> float:
    """Return the share for an alarm of the e-process that limits noise without knowing records.

    If noise of `limit` times the claimed one is refuted, the parts of the coordinates that are not
    noise have variance at most limit^2 - 1 beside the claimed 1. Noise f leaves f^2 + limit^2 - 1,
    which is refuted too where it is below 1. One step of the grid is left for chance.
    """
    left = 2 - limit**2
    step = float(RATIOS[1] / RATIOS[0])
    return math.sqrt(left) * step if left > 0 else 0.0
