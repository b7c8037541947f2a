"""A record for a person to see: a picture, or its most unusual attributes."""

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.learning.data import Split
from fedsim.learning.data.columns import text_of

Pixels = npt.NDArray[np.float32]

PUBLIC = (
    *("digits", "breast-cancer", "mnist", "fashion-mnist", "cifar-10", "purchase-100"),
    *("adult", "abalone"),
)
"""Public data sets, whose records a page may show. A user's files may hold anything."""

ROUNDING = 1e-6
"""Relative difference of two distances that is due to rounding."""

SHOWN = 10
"""Number of attributes that are shown: those that differ most."""


@dataclass(frozen=True)
class Attribute:
    """Text of an attribute, and of a typical one; `share` of D differ at least as far from it."""

    name: str
    value: str
    other: str
    share: float


def picture(features: Pixels) -> Pixels:
    """Return features [H, W] or [C, H, W] as [H, W], or as [H, W, 3] for three channels."""
    if features.ndim == 2:
        return features
    if len(features) == 3:
        return np.moveaxis(features, 0, -1)
    return features.mean(axis=0)


def unusual(split: Split, place: int) -> list[Attribute]:
    """Return where a record of D differs most from a typical one, by scaled features."""
    dataset = split.dataset
    members = split.members_records.features.reshape(len(split.members), -1)
    record, other = members[place], _typical_features(split, members)
    of_all, columns = np.abs(members - other), dataset.columns
    if len(dataset.column_of):
        names = list(columns)  # several features may come from one column
        is_of = np.equal.outer(dataset.column_of, np.arange(len(names)))
        of_all = of_all.astype(np.float64) @ is_of
    else:
        names = list(dataset.attributes) or [f"feature {i}" for i in range(members.shape[1])]
    apart = of_all[place]
    shares = (of_all >= apart * (1 - ROUNDING)).mean(axis=0)

    def attribute(i: int) -> Attribute:
        if not len(dataset.column_of):
            return Attribute(names[i], f"{record[i]:.4g}", f"{other[i]:.4g}", float(shares[i]))
        values = columns[names[i]][split.members]
        against = _typical(values, names[i] in dataset.categorical)
        return Attribute(names[i], text_of(values[place]), text_of(against), float(shares[i]))

    order = np.argsort(-apart, kind="stable")[:SHOWN]
    return [attribute(int(i)) for i in order if apart[i] > 0]


def _typical_features(split: Split, members: Pixels) -> Pixels:
    dataset = split.dataset
    typical: Pixels = np.median(members, axis=0)
    for i, (name, values) in enumerate(dataset.columns.items()):
        of_column = np.flatnonzero(dataset.column_of == i)
        if name in dataset.categorical and len(of_column):
            # From a member of that category: single medians may belong to no category.
            own = values[split.members]
            like = np.flatnonzero(own == _typical(own, categorical=True))[0]
            typical[of_column] = members[like, of_column]
    return typical


def _typical(values: npt.NDArray[Any], categorical: bool) -> Any:
    """Return the median of numbers, which may be text, or the most frequent category."""
    if not categorical:
        return np.median(values.astype(np.float64))
    kinds, counts = np.unique(values, return_counts=True)
    return kinds[counts.argmax()]


def shown(split: Split, record: int) -> dict[str, Any]:
    """Return a public record as facts.json has it: a label, and "pixels" or "attributes"."""
    label = int(split.members_records.labels[record])
    if split.dataset.kind == "image":
        pixels = picture(split.members_records.features[record])
        least, most = float(pixels.min()), float(pixels.max())
        scaled = 255 * (pixels - least) / max(most - least, 1e-12)
        return {"label": label, "pixels": np.rint(scaled).astype(int).tolist()}
    return {"label": label, "attributes": [asdict(one) for one in unusual(split, record)]}


def digest(split: Split) -> str:
    """Return the SHA-256 of the features and labels of D, in hexadecimal, for public data only."""
    digested = hashlib.sha256(split.members_records.features.astype("<f4").tobytes())
    digested.update(split.members_records.labels.astype("<i8").tobytes())
    return digested.hexdigest()
