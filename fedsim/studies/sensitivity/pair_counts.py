"""Counts of pairs by their local sensitivity, block by block, for a search that keeps no pairs."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

ROUNDING = 1e-6
"""Times the most that clipping allows: by how much a pair must be larger to count as larger."""

BINS = 2**14
"""Of the histogram: quantiles are read from it to 1/16384 of what clipping allows."""


@dataclass(frozen=True)
class Counts:
    """What one block of pairs adds to the truth.

    Attributes:
        by_row: float64 [r], the largest of each of them.
        histogram: int64 [BINS], how many pairs lie in each part of what clipping allows.
        exceeded: int64 [m + 1], how many pairs exceed just so many thresholds.
        best: int64 [c], keys of the largest.
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
        bound: what clipping allows, C or 2C.
        thresholds: float64 [m], ascending.
        width: how many may replace a record.
    """

    bound: float
    thresholds: Tensor
    width: int
    total: int
    candidates: int

    def count(self, rows: slice, columns: slice, distances: Tensor) -> Counts:
        """Return the counts of one block.

        A key orders pairs by their sensitivity in units of ROUNDING, and of equals puts the lowest
        position first: where all gradients are clipped, all may be equal.

        Args:
            columns: of which of those that may replace them.
            distances: float64 [r, c], the local sensitivities.
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
    found: Iterable[Counts], members: int, asked: int, candidates: int
) -> tuple[Floats, Integers, Integers, Integers]:
    """Add up the counts of all blocks, and keep the keys of the largest.

    Returns:
        The largest of every record [members]; how many pairs are in each bin [BINS], and above
        each threshold and none higher [asked + 1]; the keys [at most candidates], the largest last.
    """
    by_record = np.zeros(members)
    histogram = np.zeros(BINS, dtype=np.int64)
    exceeded = np.zeros(asked + 1, dtype=np.int64)
    best = np.empty(0, dtype=np.int64)
    for counts in found:
        np.maximum(by_record[counts.rows], counts.by_row, out=by_record[counts.rows])
        histogram += counts.histogram
        exceeded += counts.exceeded
        best = np.sort(np.concatenate([best, counts.best]))[-candidates:]
    return by_record, histogram, exceeded, best
