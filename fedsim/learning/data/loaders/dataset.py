"""What a dataset is: labelled records, and what they must be like before anything is computed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.learning.data.loaders.targets import Target

Indices = npt.NDArray[np.intp] | npt.NDArray[np.int64]

GREY_OR_COLOUR = (1, 3)

MOST_CLASSES = 1000
"""More are taken for a numeric column that was named as the label by mistake."""


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
        target: the range of the number that a regression predicts; None where labels are classes.
    """

    name: str
    train: Records
    test: Records | None
    classes: int
    kind: Literal["image", "tabular"]
    attributes: tuple[str, ...] = ()
    columns: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    column_of: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    categorical: frozenset[str] = frozenset()
    dropped: int = 0
    target: Target | None = None

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


def class_numbers(
    values: npt.NDArray[Any], path: Path, label: str
) -> tuple[npt.NDArray[np.int64], int]:
    """Return the class of each record, and the number of classes.

    values: [N], the different ones of which, in order, are classes 0 and on.
    Returns: int64 [N], and at least 2.
    Raises InputError if there is one class, or there are too many.
    """
    classes, numbers = np.unique(values, return_inverse=True)
    if len(classes) < 2:
        raise InputError(
            f"'{path}' has the same '{label}' for all {len(values)} records; name the labels' "
            "column, or give data with two classes or more"
        )
    if len(classes) > MOST_CLASSES:
        raise InputError(
            f"'{label}' of '{path}' has {len(classes)} different values, more than "
            f"{MOST_CLASSES} classes; name the labels' column, or group its values"
        )
    return numbers.astype(np.int64), len(classes)


def numbered_labels(
    values: npt.NDArray[Any], path: Path, label: str, target: Target | None
) -> tuple[npt.NDArray[np.int64], int]:
    """Return the label of each record, and the number of classes.

    values: [N], as they are in the file.
    target: the range of a number that is predicted; None for classes.
    Returns: int64 [N], and 1 class of numbers.
    Raises InputError as `class_numbers` does, or for values that are no finite numbers.
    """
    if target is None:
        return class_numbers(values, path, label)
    if values.dtype.kind not in "buif" or not np.isfinite(values).all():
        raise InputError(
            f"'{label}' of '{path}' holds values that are not finite numbers; data.target takes a "
            "column of numbers"
        )
    return target.steps(values), 1


def finite(features: npt.NDArray[Any], path: Path) -> npt.NDArray[np.float32]:
    """Return features as float32.

    features: [N, ...].
    Raises InputError if one is not a finite number.
    """
    with np.errstate(over="ignore"):
        numbers = features.astype(np.float32)
    wrong = ~np.isfinite(numbers)
    if wrong.any():
        row = int(np.argmax(wrong.reshape(len(wrong), -1).any(axis=1)))
        raise InputError(
            f"record {row} of '{path}' has a feature that is not a finite number in float32; "
            "leave the record out, or fill it in"
        )
    return numbers
