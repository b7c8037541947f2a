"""An interval of a proportion that stays valid however often one looks, and whenever one stops."""

import numpy as np
import numpy.typing as npt
from scipy.special import betaln

from adversaries.intervals import Interval, significance
from adversaries.trials import Floats

HALVINGS = 60
"""Steps of the bisection for an end: more than float64 can tell apart."""


def limits(
    successes: npt.ArrayLike, trials: npt.ArrayLike, confidence: float, mass: float
) -> tuple[Floats, Floats]:
    """Return the ends of the beta-binomial confidence sequence after these trials, broadcast.

    With probability at least `confidence` the proportion lies between the ends after every number
    of trials at once, so that whoever looks after each may stop when they like. The ends are where
    the likelihood of p, against its mean under Beta(mass p, mass (1 - p)), falls to alpha: a
    martingale under p, which by Ville's inequality passes 1/alpha with probability alpha at most
    (Howard, Ramdas, McAuliffe and Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence
    sequences", 2021, Proposition 7). mass: a positive number fixed in advance; the interval is
    shortest after some 8 to 10 times as many trials.

    Valid too for trials in pairs with two proportions, one trial of each, after every pair, as the
    interval of their mean: the mean of a product of two factors that are linear in p is largest
    where both are at the mean.
    """
    wins, count = np.broadcast_arrays(np.asarray(successes, float), np.asarray(trials, float))
    lower = _low(wins, count, significance(confidence), mass)
    return lower, 1 - _low(count - wins, count, significance(confidence), mass)


def interval(successes: int, trials: int, confidence: float, mass: float) -> Interval:
    """Return `limits` of one count as an interval. Raises InputError on impossible confidence."""
    low, high = limits(successes, trials, confidence, mass)
    return Interval(float(low), float(high), confidence)


def log_martingale(p: Floats, wins: Floats, trials: Floats, mass: float) -> Floats:
    """Return the logarithm of the martingale under the proportion p, 0 < p < 1."""
    losses = trials - wins
    prior = mass * p, mass * (1 - p)
    mixed = betaln(prior[0] + wins, prior[1] + losses) - betaln(*prior)
    value: Floats = mixed - wins * np.log(p) - losses * np.log1p(-p)
    return value


def _low(wins: Floats, trials: Floats, alpha: float, mass: float) -> Floats:
    """Return the smallest p that is not refuted; 0 without successes."""
    refuted, kept = np.zeros_like(wins), wins / np.maximum(trials, 1)
    for _ in range(HALVINGS):
        middle = (refuted + kept) / 2
        inside = np.clip(middle, 1e-12, 1 - 1e-12)
        out = log_martingale(inside, wins, trials, mass) >= -np.log(alpha)
        refuted, kept = np.where(out, middle, refuted), np.where(out, kept, middle)
    low: Floats = np.where(wins > 0, refuted, 0.0)
    return low
