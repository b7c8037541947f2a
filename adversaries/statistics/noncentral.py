"""Limits of the noncentrality of Student's t, precise even for the tiny tails of an alarm.

The statistic is T = (Z + m)/V with Z standard normal and V an independent root of a chi-square over
its f degrees of freedom, so P(T >= t) = E Phi(m - t V) and P(T <= t) = E Phi(t V - m). The
trapezoidal rule over a normal number that V is a function of is exact to rounding, in every tail.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import scipy
from scipy.special import ndtr

from adversaries.arrays import Floats
from adversaries.statistics.roots import find_root

DEVIATES = np.linspace(-10, 10, 2001)
"""Nodes of the rule: beyond them is a probability of 1e-23, and their spacing resolves standardised
differences of up to a hundred."""

DENSITIES = np.exp(-(DEVIATES**2) / 2) / np.sqrt(2 * np.pi)
WEIGHTS: Floats = DENSITIES / DENSITIES.sum()


def lower_limit(statistic: float, freedom: int, tail: float) -> float:
    """Return the noncentrality >= 0 at which P(T >= statistic) is `tail`; 0 if it is more at 0.

    Args:
        statistic: the observed t, up to a hundred.
        freedom: its degrees of freedom, at least 1.
        tail: probability, in (0, 1).
    """
    chi = _chi(freedom)

    def excess(noncentrality: float) -> float:
        return float(WEIGHTS @ ndtr(noncentrality - statistic * chi)) - tail

    return 0.0 if excess(0.0) >= 0 else _root(excess, statistic)


def upper_limit(statistic: float, freedom: int, tail: float) -> float:
    """Return the noncentrality >= 0 at which P(T <= statistic) is `tail`; 0 if it is less at 0.

    Args:
        statistic: the observed t, up to a hundred.
        freedom: its degrees of freedom, at least 1.
        tail: probability, in (0, 1).
    """
    chi = _chi(freedom)

    def excess(noncentrality: float) -> float:
        return tail - float(WEIGHTS @ ndtr(statistic * chi - noncentrality))

    return 0.0 if excess(0.0) >= 0 else _root(excess, statistic)


def _root(rising: Callable[[float], float], statistic: float) -> float:
    # The noncentrality is near the statistic, so the root is usually below twice as much.
    high = max(1.0, 2 * statistic)
    while rising(high) < 0:
        high *= 2
    return find_root(rising, 0.0, high, xtol=1e-9)


@lru_cache(maxsize=64)
def _chi(freedom: int) -> Floats:
    """Return V at `DEVIATES`, each from the nearer tail of its distribution."""
    # The quantile loses its precision in the far tail, so each half uses the tail that is nearer.
    half = DEVIATES < 0
    squares = np.empty_like(DEVIATES)
    squares[half] = scipy.stats.chi2.ppf(ndtr(DEVIATES[half]), freedom)
    squares[~half] = scipy.stats.chi2.isf(ndtr(-DEVIATES[~half]), freedom)
    return np.sqrt(squares / freedom)
