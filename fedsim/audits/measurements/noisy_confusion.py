"""Recall and precision of each class, from a confusion matrix with noisy cells."""

from collections.abc import Sequence

import numpy as np

from adversaries.statistics.intervals import binomial_high, binomial_low, significance
from fedsim.audits.results.quality import OfClass, Proportion
from fedsim.privacy import discrete_laplace


def of_classes(
    counts: Sequence[Sequence[int]], names: Sequence[str], scale: float, confidence: float
) -> list[OfClass]:
    """Return recall and precision of each class, with intervals that hold despite the noise.

    Args:
        counts: [c][c], a row for each label, each cell with discrete Laplace noise.
        names: names of the c classes.
        scale: scale of the noise.
        confidence: confidence of each interval, in (0, 1).
    """
    cells = np.array(counts, dtype=np.int64)
    # Of the error at either end, half is for the sample and half for the noise: a quarter for the
    # cell itself and a quarter for the sum of the others.
    tail = significance(confidence) / 8
    reach = discrete_laplace.most(scale, 1, tail)
    others_reach = discrete_laplace.most(scale, len(cells) - 1, tail)

    def proportion(right: int, others: int) -> Proportion:
        """Return the share of a noisy count in the total of itself and the noisy others."""
        fewest, most = max(0, right - reach), max(0, right + reach)
        few_others, many_others = max(0, others - others_reach), max(0, others + others_reach)
        low = float(binomial_low(fewest, fewest + many_others, 2 * tail))
        high = float(binomial_high(most, most + few_others, 2 * tail))
        counted, of = max(0, right), max(0, right) + max(0, others)
        value = counted / of if of else 0.5
        return Proportion(min(max(value, low), high), (low, high))

    return [
        OfClass(
            name,
            max(0, int(cells[label].sum())),
            proportion(int(cells[label, label]), int(np.delete(cells[label], label).sum())),
            proportion(int(cells[label, label]), int(np.delete(cells[:, label], label).sum())),
        )
        for label, name in enumerate(names)
    ]
