"""Means over draws or trainings, with their intervals."""

import numpy as np
import numpy.typing as npt
from scipy import stats

from adversaries.statistics.intervals import clopper_pearson
from fedsim.studies.reproduction.findings.finding import CONFIDENCE, Number, Reference


def averaged(name: str, values: npt.ArrayLike, references: tuple[Reference, ...] = ()) -> Number:
    """Return the mean of a few draws with Student's interval.

    Args:
        values: [n], n >= 2.
    """
    each = np.asarray(values, dtype=np.float64)
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(each) - 1) * stats.sem(each))
    mean = float(each.mean())
    return Number(name, mean, (mean - half, mean + half), references=references)


def share(name: str, hits: npt.NDArray[np.bool_], theory: float | None = None) -> Number:
    """Return how often something was so, with Clopper and Pearson's interval.

    Args:
        hits: [n], of each draw.
    """
    count, draws = int(hits.sum()), hits.size
    found = clopper_pearson(count, draws, CONFIDENCE)
    return Number(name, count / draws, (found.low, found.high), theory)
