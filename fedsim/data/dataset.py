"""What a dataset is: labelled records, and where their features come from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.intp] | npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Records:
    """Labelled records: features float32 [N, *shape], labels int64 [N]. Both become read-only."""

    features: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        self.features.flags.writeable = False
        self.labels.flags.writeable = False

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Indices) -> "Records":
        """Return a copy of the records at `indices` [n], in that order."""
        return Records(self.features[indices], self.labels[indices])


def _no_columns() -> npt.NDArray[np.int64]:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset. `train` is the paper's U; `test`, if the authors give one, is held out.

    attributes: the name of each feature, empty for images; columns: the original values of `train`
    by column, [N] each, read-only, the text itself where they are read from text, among them
    columns that are no features; column_of int64
    [features]: the position in `columns` of the one that a feature comes from, empty for images;
    categorical: the columns of unordered values; dropped: how many rows of the original had missing
    values and were left out.
    """

    name: str
    train: Records
    test: Records | None
    classes: int
    kind: Literal["image", "tabular"]
    attributes: tuple[str, ...] = ()
    columns: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    column_of: npt.NDArray[np.int64] = field(default_factory=_no_columns)
    categorical: frozenset[str] = frozenset()
    dropped: int = 0

    def __post_init__(self) -> None:
        for array in (*self.columns.values(), self.column_of):
            array.flags.writeable = False
