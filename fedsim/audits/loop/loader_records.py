"""The records of a loader's data set, and the given records that they are."""

import hashlib
from bisect import bisect_right
from typing import Any

import numpy as np


def contents(dataset: Any, given: tuple[Any, Any]) -> list[str] | None:
    """Return a checksum of each record of a data set.

    None for a data set that computes its records: one that is no TensorDataset, nor a Subset or
    ConcatDataset of these, and whose items are not the given records, unchanged.

    Args:
        dataset: a map-style data set.
        given: features [n, ...] and labels [n] that the loop was given.
    """
    from torch.utils.data import ConcatDataset, Subset, TensorDataset  # noqa: PLC0415

    if type(dataset) is Subset:
        whole = contents(dataset.dataset, given)
        return whole and [whole[place] for place in dataset.indices]
    if type(dataset) is ConcatDataset:
        parts = [contents(each, given) for each in dataset.datasets]
        known = [each for each in parts if each is not None]
        return sum(known, start=list[str]()) if len(known) == len(parts) else None
    if type(dataset) is TensorDataset:
        return checksums(*dataset.tensors)
    try:
        items = [_checksum(dataset[place]) for place in range(len(dataset))]
    except Exception:  # any code may stand there
        return None
    return items if set(checksums(*given)).issuperset(items) else None


def checksums(*arrays: Any) -> list[str]:
    """Return a checksum of each record of arrays [n, ...]."""
    return [_checksum(row) for row in zip(*arrays, strict=True)]


def _checksum(row: Any) -> str:
    # In one precision, so that a label may be a number or a tensor.
    numbers = [np.asarray(each, np.float64).tobytes() for each in row]
    return hashlib.sha256(b"".join(numbers)).hexdigest()[:16]


def source(dataset: Any, place: int, records: int) -> int:
    """Return which of the `records` given records is probably the item at a place."""
    from torch.utils.data import ConcatDataset, Subset  # noqa: PLC0415

    if type(dataset) is Subset:
        return source(dataset.dataset, int(dataset.indices[place]), records)
    if type(dataset) is ConcatDataset:
        part = bisect_right(dataset.cumulative_sizes, place)
        before = dataset.cumulative_sizes[part - 1] if part else 0
        return source(dataset.datasets[part], place - before, records)
    return place % records
