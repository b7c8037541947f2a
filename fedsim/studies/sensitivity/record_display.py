"""A pair of records as a person would compare it: two pictures, or the attributes that differ."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.neighbours.dataset_sensitivity import Pair
from fedsim.learning.data import Split

Pixels = npt.NDArray[np.float32]

SHOWN = 10
"""Attributes of a pair that are shown, those that differ most."""


@dataclass(frozen=True)
class Attribute:
    """One attribute's value in two records, as text."""

    name: str
    value: str
    other: str


@dataclass(frozen=True)
class Differences:
    attributes: tuple[Attribute, ...]
    differing: int


def images(split: Split, pair: Pair) -> tuple[Pixels, Pixels | None]:
    """Return a record's picture and its replacement's, [H, W] or [H, W, 3]; None for none."""
    record = picture(split.members_records.features[pair.record])
    if pair.replacement is None:
        return record, None
    return record, picture(split.pool_records.features[pair.replacement])


def picture(features: Pixels) -> Pixels:
    """Return features [H, W] or [C, H, W] as [H, W], or [H, W, 3] of three channels."""
    if features.ndim == 2:
        return features
    if len(features) == 3:
        return np.moveaxis(features, 0, -1)
    return features.mean(axis=0)


def differences(split: Split, pair: Pair) -> Differences:
    """Return where a record differs from its replacement, or from what is typical of D.

    Ordered by how far apart the features are, as scaled for training; values are the original ones
    where the dataset keeps them. Typical is the median, or the most frequent value.
    """
    dataset = split.dataset
    members = split.members_records.features.reshape(len(split.members), -1)
    record, replacement = members[pair.record], pair.replacement
    if replacement is None:
        other = _typical_features(split, members)
    else:
        other = split.pool_records.features[replacement].ravel()
    apart = np.abs(record - other)
    columns = dataset.columns
    if len(dataset.column_of):
        names = list(columns)  # several features may be of one column
        apart = np.bincount(dataset.column_of, apart, minlength=len(names))
    else:
        names = [f"feature {i}" for i in range(len(apart))]

    def attribute(i: int) -> Attribute:
        if not len(dataset.column_of):
            return Attribute(names[i], f"{record[i]:.4g}", f"{other[i]:.4g}")
        values = columns[names[i]]
        if replacement is None:
            against = _typical(values[split.members], names[i] in dataset.categorical)
        else:
            against = values[split.pool[replacement]]
        return Attribute(names[i], _text(values[split.members[pair.record]]), _text(against))

    order = np.argsort(-apart, kind="stable")[:SHOWN]
    found = tuple(attribute(int(i)) for i in order if apart[i] > 0)
    return Differences(found, int(np.count_nonzero(apart)))


def _typical_features(split: Split, members: Pixels) -> Pixels:
    """Return the features [F] of what is typical of D; members [n, F]."""
    dataset = split.dataset
    typical: Pixels = np.median(members, axis=0)
    for i, (name, values) in enumerate(dataset.columns.items()):
        of_column = np.flatnonzero(dataset.column_of == i)
        if name in dataset.categorical and len(of_column):
            # As a member of the category has them: the median of each may be of no category.
            own = values[split.members]
            like = np.flatnonzero(own == _typical(own, categorical=True))[0]
            typical[of_column] = members[like, of_column]
    return typical


def _typical(values: npt.NDArray[Any], categorical: bool) -> Any:
    """Return the median of numbers, which may be text, or the most frequent of categories."""
    if not categorical:
        return np.median(values.astype(np.float64))
    kinds, counts = np.unique(values, return_counts=True)
    return kinds[counts.argmax()]


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, int | float | np.number) else str(value)
