"""How well scores separate members from others: curve, area, true positives at few false ones.

Scores and memberships are [N, n], of N models and n records. Intervals are over models, which are
assumed to be independent: no model's losses or coins may enter another model's scores.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from adversaries.arrays import Bools, Floats
from adversaries.attacks.membership import MeanAdvantage, membership_advantage
from adversaries.errors import InputError
from adversaries.statistics.intervals import Interval, binomial_high, binomial_low, significance

FEWEST_FALSE = 10
"""Fewest false positives behind a rate at which true positives are reported."""


@dataclass(frozen=True, eq=False)
class Curve:
    """A receiver operating characteristic: rates [m] from (0, 0) to (1, 1), by falling threshold.

    Attributes:
        false_positive: float64 [m], rising.
        true_positive: float64 [m], rising.
        thresholds: float64 [m]; records with at least this score are members; first: infinite.
    """

    false_positive: Floats
    true_positive: Floats
    thresholds: Floats

    @property
    def area(self) -> float:
        """The area under the curve: the share of pairs in which the member scores higher."""
        return float(np.trapezoid(self.true_positive, self.false_positive))

    @property
    def best_threshold(self) -> float:
        """The threshold with the largest true positive rate less false positive rate."""
        return float(self.thresholds[np.argmax(self.true_positive - self.false_positive)])

    def true_positive_at(self, rate: float) -> float:
        """Return the largest true positive rate at a false positive rate of at most `rate`."""
        return float(self.true_positive[self._place(rate)])

    def threshold_at(self, rate: float) -> float:
        """Return the lowest threshold with a false positive rate of at most `rate`."""
        return float(self.thresholds[self._place(rate)])

    def _place(self, rate: float) -> int:
        # The margin keeps a threshold whose rate is exactly this one, up to rounding.
        return int(np.searchsorted(self.false_positive, rate * (1 + 1e-12), side="right")) - 1


@dataclass(frozen=True)
class Estimate:
    """A number and its confidence interval over models.

    Attributes:
        point: the number.
        interval: None where one model shows no spread.
    """

    point: float
    interval: Interval | None


@dataclass(frozen=True, eq=False)
class Performance:
    """The performance of an attack.

    Attributes:
        curve: of all pairs together.
        area: under the curve.
        true_positive: by false positive rate, without rates for which there are too few pairs.
        advantage: at the given threshold.
    """

    curve: Curve
    area: Estimate
    true_positive: dict[float, Estimate]
    advantage: MeanAdvantage


def curve(scores: Floats, members: Bools) -> Curve:
    """Return the curve of all pairs together.

    Args:
        scores: float64 [N, n], higher where membership is likelier.
        members: bool [N, n], True for members.

    Raises InputError for other shapes, bad scores, or for only members, or none.
    """
    _check(scores, members)
    flat, inside = scores.ravel(), members.ravel()
    order = np.argsort(-flat, kind="stable")
    ordered, hits = flat[order], inside[order]
    # The last of equal scores; comparing them directly also works for infinite ones.
    last = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), len(ordered) - 1)
    true, false = np.cumsum(hits)[last], np.cumsum(~hits)[last]
    return Curve(
        np.append(0.0, false / false[-1]),
        np.append(0.0, true / true[-1]),
        np.append(np.inf, ordered[last]),
    )


def performance(
    scores: Floats, members: Bools, confidence: float, rates: Sequence[float], threshold: float
) -> Performance:
    """Return the performance of scores: curve, area, true positives and advantage.

    Intervals are Student's across models. Those of the area and of true positives use the jackknife
    over models; the threshold of a rate is that of all models together.

    Args:
        scores: float64 [N, n], higher where membership is likelier.
        members: bool [N, n], True for members.
        confidence: of the intervals, in (0, 1).
        rates: false positive rates for which true positives are wanted.
        threshold: least score of a member, fixed without these models.

    Raises InputError for arrays or scores that cannot be compared, or for confidence out of range.
    """
    whole = curve(scores, members)
    gained = advantage(scores, members, confidence, threshold)
    others = members.size - int(members.sum())
    wanted = [rate for rate in rates if rate * others >= FEWEST_FALSE]

    def share(threshold: float) -> Callable[[Floats, Bools], float]:
        return lambda scores, members: float(np.mean(scores[members] >= threshold))

    true_positive = {
        rate: _jackknifed(share(whole.threshold_at(rate)), scores, members, confidence)
        for rate in wanted
    }
    area = _jackknifed(lambda *pairs: curve(*pairs).area, scores, members, confidence)
    return Performance(whole, area, true_positive, gained)


def _jackknifed(
    measure: Callable[[Floats, Bools], float], scores: Floats, members: Bools, confidence: float
) -> Estimate:
    """Return a measure in [0, 1] of all models, and its interval over models.

    Source: Efron and Tibshirani, "An introduction to the bootstrap" (1993), section 11.5.
    """
    models, point = len(scores), measure(scores, members)
    if models == 1:
        return Estimate(point, None)
    rest = [np.arange(models) != left_out for left_out in range(models)]
    without = np.array([measure(scores[some], members[some]) for some in rest])
    pseudo = models * point - (models - 1) * without
    error = float(pseudo.std(ddof=1)) / math.sqrt(models)
    reach = float(stdtrit(models - 1, 1 - significance(confidence) / 2)) * error
    return Estimate(point, Interval(max(0.0, point - reach), min(1.0, point + reach), confidence))


def independent_area(scores: Floats, members: Bools, confidence: float) -> Estimate:
    """Return the area under the curve of independent trials.

    The interval is Clopper and Pearson's for k comparisons, of which a share equal to the area is
    won; k is the number of disjoint pairs of a member and another record. A(1 - A)/k is the largest
    variance of the area A for any laws of the scores.

    Args:
        scores: float64 [T].
        members: bool [T].
        confidence: of the interval, in (0, 1).

    Raises InputError for bad arrays or confidence. Source: Birnbaum and Klose, "Bounds for the
    variance of the Mann-Whitney statistic", 1957.
    """
    tail = significance(confidence) / 2
    area = curve(scores[:, None], members[:, None]).area
    pairs = int(min(members.sum(), (~members).sum()))
    # The trapezoids may exceed 1 by rounding.
    won = pairs * min(area, 1.0)
    low, high = (float(limit(won, pairs, tail)) for limit in (binomial_low, binomial_high))
    return Estimate(area, Interval(low, high, confidence))


def advantage(scores: Floats, members: Bools, confidence: float, threshold: float) -> MeanAdvantage:
    """Return the mean over models of TPR - FPR, with a t interval across them.

    Args:
        scores: float64 [N, n].
        members: bool [N, n].
        confidence: of the interval, in (0, 1).
        threshold: least score that calls a record a member, fixed without these models.

    Raises InputError for arrays or scores that cannot be compared, or for a model with members
    only, or none.
    """
    _check(scores, members)
    inside = members.sum(axis=1)
    if not (inside.all() and (members.shape[1] - inside).all()):
        raise InputError("a model has only members, or none; give more records, or more models")
    called = (scores >= threshold).astype(np.float64)
    true = (called * members).sum(axis=1) / inside
    false = (called * ~members).sum(axis=1) / (members.shape[1] - inside)
    return membership_advantage(true, false, confidence)


def _check(scores: Floats, members: Bools) -> None:
    if scores.ndim != 2 or scores.shape != members.shape:
        raise InputError(
            f"scores are {scores.shape}, members {members.shape}; give both as [models, records]"
        )
    if np.isnan(scores).any():
        raise InputError("a score is not a number; a model diverged: lower the learning rate")
    if members.all() or not members.any():
        raise InputError("there are only members, or none; give pairs of both kinds")
