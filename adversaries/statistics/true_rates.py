"""The true-positive rate at given rates of false positives, with intervals by order statistics."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr

from adversaries.arrays import Bools, Floats
from adversaries.errors import InputError
from adversaries.statistics.intervals import Interval, binomial_high, binomial_low, significance
from adversaries.statistics.trials import check_trials


@dataclass(frozen=True)
class TrueRate:
    """The true-positive rate at one rate of false positives.

    Attributes:
        rate: rate of false positives.
        interval: of the true-positive rate; None if the trials on D' are too few.
        needed: trials on D' that suffice for an interval.
    """

    rate: float
    interval: Interval | None
    needed: int


def true_rates(
    worlds: Bools, log_odds: Floats, rates: Sequence[float], confidence: float
) -> list[TrueRate]:
    """Return intervals of the best true-positive rate of the score at each rate.

    All intervals hold together. They assume independent trials, of D and of D' alike.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D, or any other score.
        rates: of false positives, in (0, 1).
        confidence: of all intervals together, in (0, 1).

    Returns: one entry for each rate, without an interval where no order statistic of D' is surely
        below or above the rate.
    Raises InputError for numbers out of range.
    Source: the rate above the k-th largest of n scores follows Beta(k, n - k + 1) (David and
        Nagaraja, "Order statistics", 2003); Clopper-Pearson limits at the threshold.
    """
    worlds, log_odds = check_trials(worlds, log_odds)
    if not all(0 < rate < 1 for rate in rates):
        raise InputError(f"rates are {list(rates)}; give numbers between 0 and 1")
    # Two thresholds and two limits for each rate share the error.
    tail = significance(confidence) / (4 * len(rates))
    inside, outside = log_odds[worlds], np.sort(log_odds[~worlds])[::-1]
    return [_at(float(rate), inside, outside, tail, confidence) for rate in rates]


def _at(rate: float, inside: Floats, outside: Floats, tail: float, confidence: float) -> TrueRate:
    size = len(outside)
    needed = math.ceil(math.log(tail) / math.log1p(-rate))
    # Pr[rate above the k-th largest <= rate] = Pr[Binomial(size, rate) >= k].
    below = 1 - bdtr(np.arange(size, dtype=np.float64), size, rate)
    (surely,) = np.nonzero(below >= 1 - tail)
    if not len(inside) or not len(surely):
        return TrueRate(rate, None, needed)
    # The last threshold whose rate is surely at most `rate`: ties are not counted.
    low = binomial_low(int((inside > outside[surely[-1]]).sum()), len(inside), tail)
    # The first threshold whose rate is surely at least `rate`: ties are counted.
    (over,) = np.nonzero(below <= tail)
    count = int((inside >= outside[over[0]]).sum()) if len(over) else len(inside)
    high = binomial_high(count, len(inside), tail)
    return TrueRate(rate, Interval(float(low), float(high), confidence), needed)
