"""Spearman's rank correlation of a heuristic with the truth, with a bootstrap interval.

The bootstrap is over records where every value belongs to one record. Where every value belongs to
a pair, it is over rows and columns separately, because pairs that share a record are dependent (the
pigeonhole bootstrap: Owen, Annals of Applied Statistics 1(2), 2007).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from adversaries.arrays import Floats, Ints
from adversaries.errors import InputError

Groups = Ints

RESAMPLES = 1000
"""Bootstrap samples: the ends of a 95 % interval are then off by less than a tenth of its width."""


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rho with a percentile interval from the bootstrap.

    Attributes:
        rho: in [-1, 1].
        low: lower end of the interval.
        high: upper end.
    """

    rho: float
    low: float
    high: float


def compare(
    heuristics: Mapping[str, npt.ArrayLike],
    truth: npt.ArrayLike,
    confidence: float,
    generator: np.random.Generator,
    resamples: int = RESAMPLES,
) -> dict[str, RankCorrelation]:
    """Return the rank correlation of each heuristic with the truth, the highest first.

    Args:
        heuristics: by name, each in the shape of the truth.
        truth: [n], of records, or [n, p], of pairs of a record and a replacement.
        confidence: of each interval by itself, in (0, 1).
        generator: of the bootstrap.
        resamples: number of bootstrap samples.

    Raises InputError as `places`, for confidence out of range, or for no heuristic.
    """
    if not 0 < confidence < 1:
        raise InputError(f"the confidence is {confidence:g}; give a number between 0 and 1")
    if not heuristics:
        raise InputError("there is no heuristic to compare; give at least one")
    values = np.asarray(truth, np.float64)
    both = {name: places(heuristic, values) for name, heuristic in heuristics.items()}
    groups = {name: of_heuristic for name, (of_heuristic, _) in both.items()}
    names = list(groups)
    true_groups = both[names[0]][1]
    table = values.shape if values.ndim == 2 else (len(values), 1)
    # The correlations, and the correlations in every bootstrap sample, [resamples, heuristics].
    points = weighted_rhos(groups, true_groups, np.ones(values.size))
    drawn = np.empty((resamples, len(names)))
    for row in drawn:
        # The pigeonhole bootstrap draws rows and columns separately. A pair's multiplicity is the
        # product of its row's and its column's.
        counts = [_multiplicities(length, generator) for length in table]
        row[:] = weighted_rhos(groups, true_groups, np.outer(*counts).ravel())
    tail = 100 * (1 - confidence) / 2
    low, high = np.transpose([_interval(column, tail) for column in drawn.T])
    # Best first; of equals the one named first.
    order = np.argsort(-points, kind="stable")
    return {
        names[i]: RankCorrelation(float(points[i]), float(low[i]), float(high[i])) for i in order
    }


def _interval(drawn: Floats, tail: float) -> tuple[float, float]:
    """Return the percentiles tail and 100 - tail of the samples in which rho is defined."""
    defined = drawn[~np.isnan(drawn)]
    if not defined.size:
        return -1.0, 1.0
    low, high = np.percentile(defined, [tail, 100 - tail])
    return float(low), float(high)


def reach(chosen: float, largest: float) -> float:
    """Return the share of the largest local sensitivity that the heuristic's choice has, 0..1.

    Args:
        chosen: local sensitivity of the heuristic's choice.
        largest: local sensitivity of the best choice, in the same unit.

    Raises InputError if the chosen one exceeds the largest beyond rounding, or if the largest is 0.
    """
    if not largest > 0:
        raise InputError("the largest local sensitivity is 0: no record has a gradient")
    if chosen > largest * (1 + 1e-3):
        raise InputError(
            f"the chosen pair has {chosen:g}, more than the largest value of all pairs, {largest:g}"
        )
    return min(1.0, chosen / largest)


def places(heuristic: npt.ArrayLike, truth: npt.ArrayLike) -> tuple[Groups, Groups]:
    """Return the place of every value among the distinct ones of its array, both flat.

    Args:
        heuristic: in the shape of the truth.
        truth: [n] or [n, p].

    Raises InputError for fewer than three records, another shape, or bad or equal values.
    """
    values, others = np.asarray(truth, np.float64), np.asarray(heuristic, np.float64)
    if values.ndim not in (1, 2) or min(values.shape, default=0) < 3:
        raise InputError(
            "a rank correlation needs three records and, for pairs, three replacements, but the "
            f"truth is {' x '.join(map(str, values.shape))}; raise data.records or data.pool"
        )
    if others.shape != values.shape:
        raise InputError(f"the heuristic has shape {others.shape}, but the truth {values.shape}")
    return _groups(others, "the heuristic"), _groups(values, "the truth")


def _groups(values: Floats, name: str) -> Groups:
    """Return the place of every value among the distinct ones, flat. Raises InputError."""
    if not np.isfinite(values).all():
        raise InputError(f"{name} contains values that are not finite numbers")
    groups = rankdata(values.ravel(), method="dense").astype(np.int64) - 1
    if not groups.any():
        raise InputError(f"{name} has the same value everywhere, which gives no order")
    return groups


def _multiplicities(length: int, generator: np.random.Generator) -> Floats:
    """Return the number of times that each of `length` items is in a bootstrap sample, [length]."""
    if length == 1:  # values of records have one column
        return np.ones(1)
    drawn = generator.integers(length, size=length)
    return np.bincount(drawn, minlength=length).astype(np.float64)


def weighted_rhos(groups: Mapping[str, Groups], truth: Groups, weights: Floats) -> Floats:
    """Return Spearman's rho of each heuristic in a sample that holds each value `weights` times.

    Args:
        groups: by heuristic, int [n], the group of equal values of each value.
        truth: int [n], the groups of the true values.
        weights: float64 [n].

    Returns: a rho for each heuristic; NaN where the sample orders nothing.
    """
    true_scores = _scores(truth, weights)
    deviations = weights @ (true_scores * true_scores)
    rhos = np.empty(len(groups))
    for i, heuristic in enumerate(groups.values()):
        scores = _scores(heuristic, weights)
        scale = deviations * (weights @ (scores * scores))
        # Spearman's rho is Pearson's correlation of ranks; the scores already have mean 0.
        rhos[i] = weights @ (scores * true_scores) / np.sqrt(scale) if scale > 0 else np.nan
    return np.clip(rhos, -1, 1)


def _scores(groups: Groups, weights: Floats) -> Floats:
    """Return each value's mean rank in the weighted sample, less the mean of all ranks."""
    # Equal values share the mean rank of the block that they fill in the sorted sample.
    held = np.bincount(groups, weights)
    middles = np.cumsum(held) - held / 2
    return (middles - weights.sum() / 2)[groups]
