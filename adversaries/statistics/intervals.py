"""Confidence intervals, and results that carry one."""

import math
from dataclasses import dataclass, field
from typing import final

import numpy as np
import numpy.typing as npt
import scipy

from adversaries.arrays import Floats
from adversaries.errors import InputError

ALARM_CONFIDENCE = 0.9999
"""Confidence at which a report, of some twenty checks, calls a contradiction an alarm."""


@final
@dataclass(frozen=True)
class Interval:
    """A two-sided interval that covers the truth with probability at least `confidence`.

    Attributes:
        low: lower end.
        high: upper end, may be infinite.
        confidence: in (0, 1).
    """

    low: float
    high: float
    confidence: float

    @property
    def ends(self) -> tuple[float, float]:
        return self.low, self.high


@dataclass(frozen=True)
class Frequency:
    """The frequency of an event in independent trials.

    Attributes:
        point: count/trials.
        interval: of the event's probability.
        count: number of trials with the event.
        trials: number of trials.
    """

    point: float
    interval: Interval
    count: int
    trials: int


@dataclass(frozen=True)
class EpsilonBound:
    """A lower bound: with probability `confidence` or more, the true epsilon at `delta` is no less.

    Attributes:
        epsilon: >= 0; 0 says nothing.
        delta: of the guarantee that is bounded.
        confidence: in (0, 1).
        method: method of computation, in words.
        assumes: assumptions, in words.
        details: the statistics behind the number, by name.
        reason: why a bound of 0 says nothing, or None.
    """

    epsilon: float
    delta: float
    confidence: float
    method: str
    assumes: str
    details: dict[str, float] = field(default_factory=dict)
    reason: str | None = None


def significance(confidence: float) -> float:
    """Return alpha = 1 - confidence. Raises InputError unless 0 < confidence < 1."""
    if not 0 < confidence < 1:
        raise InputError(f"confidence is {confidence}; give a number between 0 and 1, such as 0.95")
    return 1 - confidence


def check_delta(delta: float) -> None:
    """Raise InputError unless 0 <= delta < 1."""
    if not 0 <= delta < 1:
        raise InputError(f"delta is {delta}; give a probability from 0 to below 1, such as 1e-5")


def clopper_pearson(successes: int, trials: int, confidence: float) -> Interval:
    """Return the exact interval of a binomial proportion; each end misses with at most alpha/2.

    Args:
        successes: 0 to `trials`.
        trials: 0 gives the interval [0, 1].
        confidence: in (0, 1).

    Raises InputError for confidence out of range.
    Source: Clopper and Pearson, "The use of confidence or fiducial limits", 1934.
    """
    tail = significance(confidence) / 2
    low, high = (limit(successes, trials, tail) for limit in (binomial_low, binomial_high))
    return Interval(float(low), float(high), confidence)


def mean_interval(values: npt.ArrayLike, confidence: float) -> Interval:
    """Return Student's interval of a mean: exact for normal values, approximate for others.

    Args:
        values: [n], independent and identically distributed, n at least 2.
        confidence: in (0, 1).

    Raises InputError for confidence out of range, or for fewer than two values.
    """
    tail = significance(confidence) / 2
    sample = np.asarray(values, dtype=np.float64)
    n = sample.size
    if n < 2:
        raise InputError(f"{n} values have no spread; give at least 2")
    reach = -float(scipy.special.stdtrit(n - 1, tail)) * float(sample.std(ddof=1)) / math.sqrt(n)
    mean = float(sample.mean())
    return Interval(mean - reach, mean + reach, confidence)


def wilson(share: float, trials: int, confidence: float) -> Interval:
    """Return Wilson's interval of a proportion, which is right about as often as stated.

    Args:
        share: of successes, in [0, 1]; may be a mean of shares.
        trials: behind the share, at least 1.
        confidence: in (0, 1).

    Raises InputError for confidence out of range. Source: Wilson, "Probable inference", 1927.
    """
    quantile = float(scipy.special.ndtri(1 - significance(confidence) / 2))
    # The interval has the values p with |share - p| <= quantile * sqrt(p (1 - p) / trials). Its
    # ends are the roots of a quadratic equation in p.
    weight = quantile**2 / trials
    centre = (share + weight / 2) / (1 + weight)
    reach = math.sqrt(weight * (share * (1 - share) + weight / 4)) / (1 + weight)
    return Interval(max(0.0, centre - reach), min(1.0, centre + reach), confidence)


def binomial_low(successes: npt.ArrayLike, trials: int, tail: float) -> Floats:
    """Return Clopper and Pearson's lower limits of a proportion, in the shape of the counts.

    Args:
        successes: counts [...], each out of `trials`.
        trials: 0 gives the limit 0.
        tail: probability with which each limit may be wrong, in (0, 1).
    """
    counts = np.asarray(successes, np.float64)
    # The binomial tail P(X >= counts) at p is the beta distribution function at p. Its quantile is
    # therefore the limit. Without successes the limit is 0, and any valid parameter does.
    limits = scipy.special.betaincinv(np.where(counts > 0, counts, 1.0), trials - counts + 1, tail)
    return np.where(counts > 0, limits, 0.0)


def binomial_high(successes: npt.ArrayLike, trials: int, tail: float) -> Floats:
    """Return Clopper and Pearson's upper limits of a proportion, in the shape of the counts.

    Args:
        successes: counts [...], each out of `trials`.
        trials: 0 gives the limit 1.
        tail: probability with which each limit may be wrong, in (0, 1).
    """
    failures = trials - np.asarray(successes, np.float64)
    # The same with P(X <= counts). The complemented quantile keeps its precision near 1.
    limits = scipy.special.betainccinv(
        trials - failures + 1, np.where(failures > 0, failures, 1.0), tail
    )
    return np.where(failures > 0, limits, 1.0)
