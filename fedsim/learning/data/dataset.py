"""Datasets of labelled records, and checks before anything is computed on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Floats, Ints
from adversaries.errors import InputError

if TYPE_CHECKING:
    from fedsim.configuration.federation import DataConfig

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


def place(source: "DataConfig", is_file: bool = False) -> Path:
    """Return the folder or file that the user named.

    is_file: whether it must be a file that exists.
    Raises InputError if none is named, or if there is no such file.
    """
    if not source.root:
        raise InputError(
            f"{source.name} is read from files: set data.root=PATH to their place "
            "(docs/how-to/data.md)"
        )
    path = Path(source.root).expanduser()
    if is_file and not path.is_file():
        raise InputError(f"there is no file '{path}'; set data.root=PATH to {source.name}'s file")
    return path


Indices = npt.NDArray[np.intp] | Ints

GREY_OR_COLOUR = (1, 3)


@dataclass(frozen=True, eq=False)
class Records:
    """N labelled records, float32 [N, *shape] and int64 [N], which become read-only."""

    features: npt.NDArray[np.float32]
    labels: Ints

    def __post_init__(self) -> None:
        for each in (self.features, self.labels):
            if not isinstance(each, np.ndarray):
                raise InputError(f"records are given as a {type(each).__name__}; give arrays")
            each.flags.writeable = False

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


def checked(made: Any, name: str) -> Dataset:
    """Return what the user's own loader made. Raises InputError where it is no right dataset."""

    def refuse(found: str, instead: str) -> InputError:
        return InputError(f"data.name is '{name}', which returned {found}; return {instead}")

    if not isinstance(made, Dataset):
        raise refuse(f"a {type(made).__name__}", "a Dataset")
    for records in filter(None, (made.train, made.test)):
        features, labels = records.features, records.labels
        if features.dtype not in (np.float32, np.int64) or not np.isfinite(features).all():
            raise refuse(f"features of type {features.dtype}", "float32 or tokens, all finite")
        if labels.dtype != np.int64 or labels.shape != features.shape[:1]:
            raise refuse(
                f"labels of type {labels.dtype}, {list(labels.shape)}",
                f"one int64 for each of the {len(features)} records",
            )
        if made.target is None and features.dtype == np.float32 and len(labels):
            ends = int(labels.min()), int(labels.max())
            if ends[0] < 0 or ends[1] >= made.classes:
                raise refuse(f"labels {ends[0]} to {ends[1]}", f"0 to {made.classes - 1}")
    return made


@dataclass(frozen=True, eq=False)
class Split:
    """The positions of D, held-out records and pool in a dataset, int64."""

    dataset: Dataset
    members: Ints
    held_out: Ints
    pool: Ints

    @cached_property
    def members_records(self) -> Records:
        return self.dataset.train.take(self.members)

    @cached_property
    def held_out_records(self) -> Records:
        source = self.dataset.train if self.dataset.test is None else self.dataset.test
        return source.take(self.held_out)

    @cached_property
    def pool_records(self) -> Records:
        return self.dataset.train.take(self.pool)


@dataclass(frozen=True, eq=False)
class Division:
    """The records that a partition divides among clients, by labels or whole keys [n].

    Attributes:
        alpha: concentration of "dirichlet" and "quantity".
        options: of a partitioner of Flower, by its names.
    """

    labels: Ints
    clients: int
    alpha: float
    keys: npt.NDArray[Any] | None = None
    options: Mapping[str, int | float | str | bool] = field(default_factory=dict)


def of_features(
    name: str,
    records: Records,
    classes: int,
    names: tuple[str, ...],
    values: npt.NDArray[Any],
    categorical: frozenset[str] = frozenset(),
) -> Dataset:
    """Return the dataset of a table whose columns, values [N, F] by name, are its features."""
    return Dataset(
        name,
        records,
        None,
        classes,
        "tabular",
        attributes=names,
        columns=dict(zip(names, values.T, strict=True)),
        column_of=np.arange(len(names), dtype=np.int64),
        categorical=categorical,
    )


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
