"""Counts of pairs by local sensitivity, block by block, for a search that keeps no pairs."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

ROUNDING = 1e-6
"""Difference, as a share of the bound of clipping, below which pairs count as equal."""

BINS = 2**14
"""Bins of the histogram. Quantiles are right to 1/16384 of the bound of clipping."""


@dataclass(frozen=True)
class Counts:
    """The counts of one block of pairs.

    Attributes:
        by_row: float64 [r], largest local sensitivity of each record.
        histogram: int64 [BINS], number of pairs in each part of 0..bound.
        exceeded: int64 [m + 1], at i: number of pairs that exceed exactly i thresholds.
        best: int64 [c], keys of the largest pairs.
    """

    rows: slice
    by_row: Floats
    histogram: npt.NDArray[np.int64]
    exceeded: npt.NDArray[np.int64]
    best: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Counter:
    """Counts the pairs of a block.

    Attributes:
        thresholds: float64 [m], ascending.
        width: number of replacements for a record.
        total: number of all pairs.
        candidates: number of largest pairs to keep.
    """

    bound: float
    thresholds: Tensor
    width: int
    total: int
    candidates: int

    def count(self, rows: slice, columns: slice, distances: Tensor) -> Counts:
        """Return the counts of one block of local sensitivities, float64 [r, c].

        A key orders pairs by their sensitivity in units of ROUNDING, and equal pairs by position.
        If all gradients are clipped, all pairs may be equal.
        """
        flat = distances.flatten()
        bins = (flat * (BINS / self.bound)).long().clamp_(max=BINS - 1)
        passed = torch.bucketize(flat, self.thresholds)
        records = torch.arange(rows.start, rows.stop, device=flat.device)
        others = torch.arange(columns.start, columns.stop, device=flat.device)
        places = (records[:, None] * self.width + others).flatten()
        keys = (flat / (ROUNDING * self.bound)).round_().long() * self.total - places
        return Counts(
            rows,
            distances.amax(1).cpu().numpy(),
            bins.bincount(minlength=BINS).cpu().numpy(),
            passed.bincount(minlength=len(self.thresholds) + 1).cpu().numpy(),
            keys.topk(min(self.candidates, len(keys))).values.cpu().numpy(),
        )

    def pairs(self, keys: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
        """Return record and replacement of some keys, int64 [c]."""
        records, others = np.divmod(-keys % self.total, self.width)
        return list(zip(records.tolist(), others.tolist(), strict=True))


def added_up(
    blocks: Iterable[Counts], members: int, thresholds: int, candidates: int
) -> tuple[Floats, Integers, Integers, Integers]:
    """Return the sums of all blocks' counts, and the keys of the largest pairs.

    Returns:
        Largest local sensitivity of every record [members]; histogram [BINS]; number of pairs that
        exceed exactly i thresholds [thresholds + 1]; keys [at most candidates], the largest last.
    """
    by_record = np.zeros(members)
    histogram = np.zeros(BINS, dtype=np.int64)
    exceeded = np.zeros(thresholds + 1, dtype=np.int64)
    best = np.empty(0, dtype=np.int64)
    for counts in blocks:
        np.maximum(by_record[counts.rows], counts.by_row, out=by_record[counts.rows])
        histogram += counts.histogram
        exceeded += counts.exceeded
        best = np.sort(np.concatenate([best, counts.best]))[-candidates:]
    return by_record, histogram, exceeded, best
