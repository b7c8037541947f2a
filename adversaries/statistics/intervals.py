"""Intervals that cover the truth with a stated confidence, and counts that carry one."""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import betainccinv, betaincinv, ndtri, stdtrit

from adversaries.errors import InputError
from adversaries.statistics.trials import Floats

ALARM_CONFIDENCE = 0.9999
"""How sure a contradiction of theory, or of a claim, must be before a report calls it one.

A report makes up to twenty such checks, and a study hundreds of reports: at one in a thousand each
an honest run among them would be accused.
"""


@dataclass(frozen=True)
class Interval:
    """A two-sided interval that covers the truth with probability at least `confidence`.

    Attributes:
        low: its lower end.
        high: its upper end, may be infinite.
        confidence: in (0, 1).
    """

    low: float
    high: float
    confidence: float


@dataclass(frozen=True)
class Frequency:
    """How often something happened in independent trials.

    Attributes:
        point: count/trials.
        interval: of the probability behind it.
        count: how often it happened.
        trials: how often it could have.
    """

    point: float
    interval: Interval
    count: int
    trials: int


@dataclass(frozen=True)
class LowerBound:
    """With probability at least `confidence`, no epsilon below this one is true at `delta`.

    Attributes:
        epsilon: >= 0; 0 says nothing.
        delta: of the guarantee that is bounded.
        confidence: in (0, 1).
        method: how it was computed, in words.
        assumes: when it holds, in words.
        trusts_noise: whether the claimed noise entered.
        details: the statistics behind the number, by name.
        reason: why a bound of 0 says nothing, if it does.
        kind: "credible" holds with `confidence` given the trials and a prior, which is not how
            often it is right.
    """

    epsilon: float
    delta: float
    confidence: float
    method: str
    assumes: str
    trusts_noise: bool
    details: dict[str, float] = field(default_factory=dict)
    reason: str | None = None
    kind: Literal["confidence", "credible"] = "confidence"


def significance(confidence: float) -> float:
    """Return alpha = 1 - confidence.

    Args:
        confidence: in (0, 1).

    Raises:
        InputError: unless 0 < confidence < 1.
    """
    if not 0 < confidence < 1:
        raise InputError(f"confidence is {confidence}; give a number between 0 and 1, such as 0.95")
    return 1 - confidence


def check_delta(delta: float) -> None:
    """Raise InputError unless 0 <= delta < 1."""
    if not 0 <= delta < 1:
        raise InputError(f"delta is {delta}; give a probability from 0 to below 1, such as 1e-5")


def check_positive_delta(delta: float) -> None:
    """Raise InputError unless 0 < delta < 1."""
    if not 0 < delta < 1:
        raise InputError(f"delta is {delta}; give a probability above 0 and below 1, such as 1e-5")


def clopper_pearson(successes: int, trials: int, confidence: float) -> Interval:
    """Return the exact interval of a binomial proportion; each end misses with at most alpha/2.

    Args:
        successes: 0 to `trials`.
        trials: without any the interval is [0, 1].
        confidence: in (0, 1).

    Raises:
        InputError: an impossible confidence.

    Source:
        Clopper and Pearson, "The use of confidence or fiducial limits", 1934.
    """
    tail = significance(confidence) / 2
    low, high = (limit(successes, trials, tail) for limit in (binomial_low, binomial_high))
    return Interval(float(low), float(high), confidence)


def mean_interval(values: npt.ArrayLike, confidence: float) -> Interval:
    """Return Student's interval of a mean: exact for normal values, nearly so for many others.

    Args:
        values: [n], independent and of one distribution, n at least 2.
        confidence: in (0, 1).

    Raises:
        InputError: an impossible confidence; fewer than two values.
    """
    tail = significance(confidence) / 2
    found = np.asarray(values, dtype=np.float64)
    if found.size < 2:
        raise InputError(f"{found.size} values have no spread; give at least 2")
    reach = -float(stdtrit(found.size - 1, tail)) * float(found.std(ddof=1)) / math.sqrt(found.size)
    mean = float(found.mean())
    return Interval(mean - reach, mean + reach, confidence)


def wilson(share: float, trials: int, confidence: float) -> Interval:
    """Return Wilson's interval of a proportion, nearly as often right as stated.

    It has some width also where the share is 0 or 1.

    Args:
        share: of successes, in [0, 1]; also a mean of many shares.
        trials: behind the share, at least 1.
        confidence: in (0, 1).

    Raises:
        InputError: an impossible confidence.

    Source:
        Wilson, "Probable inference", 1927.
    """
    quantile = float(ndtri(1 - significance(confidence) / 2))
    weight = quantile**2 / trials
    centre = (share + weight / 2) / (1 + weight)
    reach = math.sqrt(weight * (share * (1 - share) + weight / 4)) / (1 + weight)
    return Interval(max(0.0, centre - reach), min(1.0, centre + reach), confidence)


def binomial_low(successes: npt.ArrayLike, trials: int, tail: float) -> Floats:
    """Return Clopper and Pearson's lower limits of a proportion, in the shape of the counts.

    Args:
        successes: counts [...], each out of `trials`.
        trials: without any the limit is 0.
        tail: the probability with which each limit may be wrong, in (0, 1).
    """
    counts = np.asarray(successes, np.float64)
    limits = betaincinv(np.where(counts > 0, counts, 1.0), trials - counts + 1, tail)
    return np.where(counts > 0, limits, 0.0)


def binomial_high(successes: npt.ArrayLike, trials: int, tail: float) -> Floats:
    """Return Clopper and Pearson's upper limits of a proportion, in the shape of the counts.

    Args:
        successes: counts [...], each out of `trials`.
        trials: without any the limit is 1.
        tail: the probability with which each limit may be wrong, in (0, 1).
    """
    failures = trials - np.asarray(successes, np.float64)
    limits = betainccinv(trials - failures + 1, np.where(failures > 0, failures, 1.0), tail)
    return np.where(failures > 0, limits, 1.0)
