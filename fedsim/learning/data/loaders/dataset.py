"""What a dataset is: labelled records, and where their features come from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError

Indices = npt.NDArray[np.intp] | npt.NDArray[np.int64]

GREY_OR_COLOUR = (1, 3)


@dataclass(frozen=True, eq=False)
class Records:
    """N labelled records. Both arrays become read-only.

    Attributes:
        features: float32 [N, *shape].
        labels: int64 [N].
    """

    features: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        self.features.flags.writeable = False
        self.labels.flags.writeable = False

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Indices) -> "Records":
        """Return a copy of some records, in the order asked for.

        indices: [n], their positions.
        """
        return Records(self.features[indices], self.labels[indices])


def _no_columns() -> npt.NDArray[np.int64]:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset.

    Attributes:
        name: as a configuration names it.
        train: the paper's U.
        test: held out; None where the authors give none.
        classes: the number of labels.
        kind: of the records.
        attributes: the name of each feature, empty for images.
        columns: the original values of `train` by column, [N] each, read-only, the text itself
            where they are read from text, among them columns that are no features.
        column_of: int64 [features], the position in `columns` of the one that a feature comes from;
            empty for images.
        categorical: the columns of unordered values.
        dropped: how many rows of the original had missing values and were left out.
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


def only(dataset: Dataset, classes: Sequence[str]) -> Dataset:
    """Return the records of some classes alone, which are numbered anew.

    classes: two or more different labels, as text; the first becomes 0.
    Raises InputError if they are others.
    """
    known = {str(label): label for label in range(dataset.classes)}
    if unknown := [label for label in classes if label not in known]:
        raise InputError(
            f"data.classes names '{unknown[0]}', but the labels of {dataset.name} are 0 to "
            f"{dataset.classes - 1}"
        )
    if len(set(classes)) != len(classes) or len(classes) < 2:
        raise InputError(
            f"data.classes is '{','.join(classes)}'; give two or more different labels, such as "
            "'0,1', or \"\" for all"
        )
    number = np.full(dataset.classes, -1)
    number[[known[label] for label in classes]] = np.arange(len(classes))

    def kept(records: Records) -> tuple[npt.NDArray[np.intp], Records]:
        rows = np.flatnonzero(number[records.labels] >= 0)
        return rows, Records(records.features[rows], number[records.labels[rows]])

    rows, train = kept(dataset.train)
    return replace(
        dataset,
        train=train,
        test=None if dataset.test is None else kept(dataset.test)[1],
        classes=len(classes),
        columns={name: values[rows] for name, values in dataset.columns.items()},
    )
