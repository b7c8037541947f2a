"""Datasets of labelled records, and checks before anything is computed on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Floats, Ints
from adversaries.errors import InputError

STEPS = 2**20
"""Steps of a range; float32 represents all of them exactly."""

Separator = Literal[",", ";", "\t", "|"]
Decimal = Literal[".", ","]
Encoding = Literal["utf-8", "windows-1252", "utf-16"]
"""Windows-1252 contains every printable character of latin-1 at the same place."""

Columns = Mapping[str, Sequence[str]]
"""Columns of a table as text, [N] by name."""


@dataclass(frozen=True)
class CsvFormat:
    """How a file of separated values is written."""

    separator: Separator = ","
    decimal: Decimal = "."
    encoding: Encoding = "utf-8"

    def __str__(self) -> str:
        mark = "commas" if self.decimal == "," else "points"
        return f"values separated by {self.separator!r}, decimal {mark}, {self.encoding}"


PLAIN = CsvFormat()
"""UTF-8, commas and decimal points."""


@dataclass(frozen=True)
class TargetRange:
    """The public range of the number that a regression predicts, in order; else InputError."""

    least: float
    largest: float

    def __post_init__(self) -> None:
        if not (np.isfinite([self.least, self.largest]).all() and self.least < self.largest):
            raise InputError(
                f"the target's range is {self.least:g} to {self.largest:g}; give two finite "
                "numbers, the smaller one first"
            )

    def steps(self, values: npt.NDArray[Any]) -> Ints:
        """Return the step of each finite number, int64; numbers outside the range are clipped."""
        share = (np.asarray(values, np.float64) - self.least) / (self.largest - self.least)
        return np.rint(np.clip(share, 0, 1) * STEPS).astype(np.int64)

    def values(self, shares: npt.NDArray[Any]) -> Floats:
        """Return the numbers, float64, at these shares of the range."""
        return self.least + np.asarray(shares, np.float64) * (self.largest - self.least)


def parsed(text: str) -> TargetRange | None:
    """Return the target in "LEAST,LARGEST"; None for "".

    Raises InputError for another text.
    """
    if not text:
        return None
    try:
        least, largest = map(float, text.split(","))
    except ValueError:
        raise InputError(
            f"data.target is '{text}'; give the least and the largest value separated by a comma, "
            'such as "0,60"'
        ) from None
    return TargetRange(least, largest)


@dataclass(frozen=True)
class Source:
    """The keys of [data] that tell a loader what to read.

    Attributes:
        name: a key of `fedsim.learning.data.DATASETS`, or "package.module:name" of a loader.
        root: the folder or file to read.
        label: of a table, the column of the labels.
        exclude: of a table, the columns that are not features.
        image_size: side of the squares to which pictures are scaled; 0 keeps their size.
        download: whether missing originals may be downloaded into `root`.
        length: of texts, number of tokens in each.
        tokenizer: of texts, the directory of their tokenizer.
        target: the range of the number that a regression predicts; None where labels are classes.
        classes: the labels to keep, two or more; empty for all.
    """

    name: str
    root: str = ""
    label: str = "label"
    exclude: tuple[str, ...] = ()
    image_size: int = 0
    download: bool = False
    length: int = 64
    tokenizer: str = ""
    target: TargetRange | None = None
    classes: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """The folder or file that the user named; raises InputError if none is named."""
        if not self.root:
            raise InputError(
                f"{self.name} is read from files: set data.root=PATH to their place "
                "(docs/how-to/data.md)"
            )
        return Path(self.root).expanduser()

    @property
    def file(self) -> Path:
        """The file that the user named; raises InputError if it does not exist."""
        if not self.path.is_file():
            raise InputError(
                f"there is no file '{self.path}'; set data.root=PATH to {self.name}'s file"
            )
        return self.path


Indices = npt.NDArray[np.intp] | Ints

GREY_OR_COLOUR = (1, 3)

MOST_CLASSES = 1000
"""More classes suggest that a numeric column was named as the label by mistake."""


@dataclass(frozen=True, eq=False)
class Records:
    """N labelled records, float32 [N, *shape] and int64 [N], which become read-only."""

    features: npt.NDArray[np.float32]
    labels: Ints

    def __post_init__(self) -> None:
        self.features.flags.writeable = False
        self.labels.flags.writeable = False

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Indices) -> "Records":
        """Return a copy of the records at some positions [n], in this order."""
        return Records(self.features[indices], self.labels[indices])


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset.

    Attributes:
        test: held-out records; None where the authors give none.
        columns: the original values of `train`, [N] read-only by column, features or not.
        keys: the texts of columns whose values a schema changed, [N] by column.
        column_of: the position in `columns` of each feature's column, int64; empty for images.
    """

    name: str
    train: Records
    test: Records | None
    classes: int
    kind: Literal["image", "tabular"]
    attributes: tuple[str, ...] = ()
    columns: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    keys: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    column_of: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    categorical: frozenset[str] = frozenset()
    target: TargetRange | None = None

    def __post_init__(self) -> None:
        for array in (*self.columns.values(), *self.keys.values(), self.column_of):
            array.flags.writeable = False

    def shares(self, features: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return features [N, *shape] whose numbers, which a schema made -1 to 1, are 0 to 1."""
        if not self.keys:
            return features
        numbers = np.isin(self.attributes, list(self.keys))
        return np.where(numbers, (features + 1) / 2, features).astype(np.float32)


def only(dataset: Dataset, classes: Sequence[str]) -> Dataset:
    """Return the records of some classes, which are numbered anew.

    classes: two or more different labels, as text; the first becomes 0.
    Raises InputError for other classes.
    """
    number_of = {str(label): label for label in range(dataset.classes)}
    if unknown := [label for label in classes if label not in number_of]:
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
    number[[number_of[label] for label in classes]] = np.arange(len(classes))

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
        keys={name: values[rows] for name, values in dataset.keys.items()},
    )


def numbered_labels(
    values: npt.NDArray[Any], path: Path, label: str, target: TargetRange | None = None
) -> tuple[Ints, int]:
    """Return the label of each record, int64 [N], and the number of classes (1 for numbers).

    values: [N], as in the file; the distinct ones, in order, are classes 0 and on.
    target: the range of a predicted number; None for classes.
    Raises InputError for one class or too many, or for values that are not finite numbers.
    """
    if target is not None:
        if values.dtype.kind not in "buif" or not np.isfinite(values).all():
            raise InputError(
                f"'{label}' of '{path}' has values that are not finite numbers; data.target needs "
                "a column of numbers"
            )
        return target.steps(values), 1
    classes, numbers = np.unique(values, return_inverse=True)
    if len(classes) < 2:
        raise InputError(
            f"'{path}' has the same '{label}' for all {len(values)} records; name the column of "
            "the labels, or give data with two or more classes"
        )
    if len(classes) > MOST_CLASSES:
        raise InputError(
            f"'{label}' of '{path}' has {len(classes)} different values, more than "
            f"{MOST_CLASSES} classes; name the column of the labels, or group its values"
        )
    return numbers.astype(np.int64), len(classes)


def finite(features: npt.NDArray[Any], path: Path) -> npt.NDArray[np.float32]:
    """Return features [N, ...] as float32.

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
