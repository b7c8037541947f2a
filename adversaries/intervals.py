"""Intervals that cover the truth with a stated confidence, and counts that carry one."""

from dataclasses import dataclass

from scipy.special import betainccinv, betaincinv

from fedsim.errors import InputError

ALARM_CONFIDENCE = 0.999
"""How sure a contradiction of theory, or of a claim, must be before a report calls it one."""


@dataclass(frozen=True)
class Interval:
    """A two-sided interval that covers the truth with probability at least `confidence`."""

    low: float
    high: float
    confidence: float


@dataclass(frozen=True)
class Frequency:
    """How often something happened in independent trials."""

    point: float
    interval: Interval
    count: int
    trials: int


def significance(confidence: float) -> float:
    """Return alpha = 1 - confidence. Raises InputError unless 0 < confidence < 1."""
    if not 0 < confidence < 1:
        raise InputError(f"confidence is {confidence}; give a number between 0 and 1, such as 0.95")
    return 1 - confidence


def clopper_pearson(successes: int, trials: int, confidence: float) -> Interval:
    """Return the exact interval of a binomial proportion; each end misses with at most alpha/2.

    Without trials it is [0, 1]. Clopper and Pearson, "The use of confidence or fiducial limits",
    1934. Raises InputError on an impossible confidence.
    """
    tail = significance(confidence) / 2
    failures = trials - successes
    low = float(betaincinv(successes, failures + 1, tail)) if successes else 0.0
    high = float(betainccinv(successes + 1, failures, tail)) if failures else 1.0
    return Interval(low, high, confidence)
