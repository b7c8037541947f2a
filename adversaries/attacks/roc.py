"""How well scores separate members from others: curve, area, true positives at few false ones.

Scores and memberships are [N, n], of N models and n records. Intervals are over models, which are
assumed to be independent: no model's losses or coins may enter another model's scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, stdtrit

from adversaries.arrays import Bools, Floats
from adversaries.attacks.membership import MeanAdvantage, membership_advantage
from adversaries.errors import InputError
from adversaries.statistics.intervals import Interval, binomial_high, binomial_low, significance

REPLICATES = 1000
"""Bootstrap samples of the models."""

THRESHOLDS = 2048
"""Largest number of thresholds at which the bootstrap counts."""

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
        # The margin keeps a threshold whose rate is exactly this one, up to rounding.
        place = np.searchsorted(self.false_positive, rate * (1 + 1e-12), side="right") - 1
        return float(self.true_positive[place])


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
    scores: Floats,
    members: Bools,
    confidence: float,
    rates: Sequence[float],
    generator: np.random.Generator,
    threshold: float,
) -> Performance:
    """Return the performance of scores: curve, area, true positives and advantage.

    The intervals of area and true positives are percentiles of the bootstrap over models, widened
    to Student's t for N models. The advantage has a t interval across models.

    Args:
        scores: float64 [N, n], higher where membership is likelier.
        members: bool [N, n], True for members.
        confidence: of the intervals, in (0, 1).
        rates: false positive rates for which true positives are wanted.
        generator: of the bootstrap.
        threshold: least score of a member, fixed without these models.

    Raises InputError for arrays or scores that cannot be compared, or for confidence out of range.
    Source:
        T. Hesterberg, "What teachers should know about the bootstrap", 2015.
    """
    alpha = significance(confidence)
    whole = curve(scores, members)
    others = members.size - int(members.sum())
    wanted = [rate for rate in rates if rate * others >= FEWEST_FALSE]
    gained = advantage(scores, members, confidence, threshold)
    if len(scores) == 1:
        alone = {rate: Estimate(whole.true_positive_at(rate), None) for rate in wanted}
        return Performance(whole, Estimate(whole.area, None), alone, gained)
    areas, true_positives = _bootstrap(whole, scores, members, wanted, generator)
    models = len(scores)
    # Hesterberg's expanded percentile: the bootstrap's variance lacks the factor N/(N - 1), and few
    # models need Student's quantile.
    tail = float(ndtr(np.sqrt(models / (models - 1)) * stdtrit(models - 1, alpha / 2)))

    def interval(values: Floats) -> Interval:
        low, high = np.quantile(values, [tail, 1 - tail])
        return Interval(float(low), float(high), confidence)

    return Performance(
        whole,
        Estimate(whole.area, interval(areas)),
        {
            rate: Estimate(whole.true_positive_at(rate), interval(values))
            for rate, values in zip(wanted, true_positives, strict=True)
        },
        gained,
    )


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


def _bootstrap(
    whole: Curve,
    scores: Floats,
    members: Bools,
    rates: Sequence[float],
    generator: np.random.Generator,
) -> tuple[Floats, list[Floats]]:
    """Return the areas [B] and the true positives at each rate [B] of samples of the models."""
    models = len(scores)
    # Thresholds are finest in the tail of few false positives, which matters most.
    steps = np.concatenate([np.geomspace(1e-6, 1, THRESHOLDS // 2), np.linspace(0, 1, THRESHOLDS)])
    places = np.searchsorted(whole.false_positive, np.unique(steps), side="right") - 1
    grid = np.unique(whole.thresholds[places])  # ascending; the infinite one is the last
    if len(whole.thresholds) <= THRESHOLDS:
        grid = whole.thresholds[::-1]
    # The place of each pair among the thresholds, numbered separately for each model.
    bins = np.searchsorted(grid, scores, side="right")
    bins += (len(grid) + 1) * np.arange(models)[:, None]

    def counts(chosen: Bools) -> Floats:
        """Return the number of pairs of each model called members at each threshold, [N, m]."""
        sizes = np.bincount(bins[chosen], minlength=models * (len(grid) + 1))
        # Bin i has the scores from threshold i - 1 up to i: the bins from i on are above.
        above = sizes.reshape(models, -1)[:, ::-1].cumsum(axis=1)[:, :-1]
        return above.astype(np.float64)

    # The number of times each model is in each sample [B, N]; counts of a sample are sums.
    drawn = generator.multinomial(models, np.full(models, 1 / models), size=REPLICATES)
    true, false = (drawn @ counts(chosen) for chosen in (members, ~members))
    all_true, all_false = (drawn @ chosen.sum(axis=1)[:, None] for chosen in (members, ~members))
    # A sample may lie below the point (1, 1) of the lowest threshold, which calls all members.
    true = np.concatenate([np.zeros_like(all_true), true, all_true], axis=1) / all_true
    false = np.concatenate([np.zeros_like(all_false), false, all_false], axis=1) / all_false
    areas = np.trapezoid(true, false, axis=1)
    at = [
        np.take_along_axis(true, (false <= rate * (1 + 1e-12)).sum(axis=1)[:, None] - 1, 1)[:, 0]
        for rate in rates
    ]
    return areas, at


def _check(scores: Floats, members: Bools) -> None:
    if scores.ndim != 2 or scores.shape != members.shape:
        raise InputError(
            f"scores are {scores.shape}, members {members.shape}; give both as [models, records]"
        )
    if np.isnan(scores).any():
        raise InputError("a score is not a number; a model diverged: lower the learning rate")
    if members.all() or not members.any():
        raise InputError("there are only members, or none; give pairs of both kinds")
