"""What the records of all clients have in common: public, and what each checks its own by.

    label = "income"
    classes = ["<=50K", ">50K"]

    [columns]
    age = [17, 90]                              # numbers in a range
    workclass = ["Private", "State-gov"]        # one of some values

or, of images,

    classes = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]

    [image]
    shape = [1, 28, 28]                         # channels, rows, columns
    range = [0, 255]                            # of the pixels

or, of texts,

    classes = ["negative", "positive"]

    [text]
    column = "review"
    length = 64                                 # tokens; what is longer is cut

It says how values become features, so that no client computes a minimum, a mean or a list of
categories on its records, which would leave it unprotected.
"""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError, model_validator

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.common.foreign_text import brief
from fedsim.common.tables import Table, explain

MISSING = ("", "?", "na", "nan", "none")
"""What stands for a missing value, in whichever case."""

LONGEST = 60
"""Letters of a value that an error message has."""

SHOWN = 10
"""How many names an error message has where there may be hundreds."""

Floats = npt.NDArray[np.float32]

LARGEST = 1e15
"""The largest end of a range: about a tenth of what float64 counts in whole numbers."""

Range = Annotated[list[float], Field(min_length=2, max_length=2)]
Categories = Annotated[list[str], Field(min_length=2, max_length=1000)]


def _check_range(owner: str, ends: Sequence[Any]) -> None:
    if not ends[0] < ends[1]:
        raise ValueError(f"{owner} has the range {ends}; give [least, largest]")
    if max(map(abs, ends)) > LARGEST:
        raise ValueError(f"{owner} has the range {ends}, which goes beyond {LARGEST:g}; narrow it")


class Image(Table):
    """What pictures are.

    Attributes:
        shape: channels (1 or 3), rows and columns.
        range: the least and the largest value of a pixel.
    """

    shape: Annotated[list[Annotated[int, Field(ge=1, le=4096)]], Field(min_length=3, max_length=3)]
    range: Range = Field(default=[0.0, 255.0])


class Text(Table):
    """What texts are.

    Attributes:
        column: of a table, that they stand in.
        length: tokens that a record has; what is longer is cut, and what is shorter padded.
    """

    column: str = "text"
    length: Annotated[int, Field(ge=1, le=4096)]


class Schema(Table):
    """What the records of all clients have in common.

    Attributes:
        classes: the labels, in the order of their numbers.
        label: of a table, the column of the labels.
        columns: of a table, what each feature's column holds: a range, or one of some values.
        image: of pictures, what they are; None for others.
        text: of texts, what they are; None for others.
    """

    classes: Categories
    label: str = "label"
    columns: dict[str, Range | Categories] = Field(default_factory=dict)
    image: Image | None = None
    text: Text | None = None

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Self:
        if [bool(self.columns), self.image is not None, self.text is not None].count(True) != 1:
            raise ValueError(
                "a schema has [columns] of a table, [image] of pictures or [text]: give one"
            )
        if len(set(self.classes)) < len(self.classes):
            raise ValueError("classes has a label twice; name each once")
        if self.label in self.columns:
            raise ValueError(f"column '{self.label}' is the label, and no feature; take it out")
        for name, column in self.columns.items():
            if isinstance(column[0], str):
                if len(set(column)) < len(column):
                    raise ValueError(f"column '{name}' has a value twice; name each once")
            else:
                _check_range(f"column '{name}'", column)
        if self.image is not None:
            _check_range("image", self.image.range)
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one record's features."""
        if self.image is not None:
            return tuple(self.image.shape)
        return (self.text.length if self.text is not None else len(self.features),)

    @property
    def features(self) -> tuple[str, ...]:
        """The name of each feature of a table, in order; empty for pictures and texts."""
        return tuple(
            name if not isinstance(column[0], str) else f"{name}={value}"
            for name, column in self.columns.items()
            for value in (column if isinstance(column[0], str) else column[:1])
        )

    def numbers(self, labels: Sequence[str], where: str) -> npt.NDArray[np.int64]:
        """Return the number of each label, int64 [N].

        labels: as text, [N].
        Raises InputError if one is not of the schema's.
        """
        known = {name: number for number, name in enumerate(self.classes)}
        for row, label in enumerate(labels, 1):
            if label not in known:
                raise InputError(
                    f"record {row} of {where} has the label '{brief(label, LONGEST)}', but the "
                    f"schema's classes are {_shortened(self.classes)}; mend the record, or "
                    "the schema that all share"
                )
        return np.array([known[label] for label in labels], dtype=np.int64)

    def table(self, columns: Mapping[str, Sequence[str]], where: str) -> Floats:
        """Return the features of a table: ranges from 0 to 1, and a feature for each category.

        columns: as text, [N] by name; others than the schema's are left out.
        Returns: float32 [N, features].
        Raises InputError if a column or a value is missing, or not as the schema says.
        """
        blocks = []
        for name, column in self.columns.items():
            if name not in columns:
                raise InputError(
                    f"{where} has no column '{name}', which the schema has; it has "
                    f"{_shortened(list(columns))}"
                )
            values = columns[name]
            if isinstance(column[0], str):
                blocks.append(_one_hot(name, values, list(map(str, column)), where))
            else:
                blocks.append(_scaled(name, values, float(column[0]), float(column[1]), where))
        return np.concatenate(blocks, axis=1)

    def texts(self, columns: Mapping[str, Sequence[str]], where: str) -> Sequence[str]:
        """Return the text of each record, [N].

        columns: as text, [N] by name; others than the schema's are left out.
        Raises InputError if there are none, or one is empty.
        """
        assert self.text is not None
        name = self.text.column
        if name not in columns:
            raise InputError(
                f"{where} has no column '{name}', which the schema has; it has "
                f"{_shortened(list(columns))}"
            )
        for row, value in enumerate(columns[name], 1):
            if not value:
                raise InputError(
                    f"record {row} of {where} has no text in the column '{name}'; mend the record"
                )
        return columns[name]

    def pixels(self, images: npt.NDArray[Any], where: str) -> Floats:
        """Return pictures float32 [N, C, H, W] between 0 and 1.

        images: numbers [N, C, H, W].
        Raises InputError if they are of another shape, or a pixel is outside of the schema's range.
        """
        assert self.image is not None
        if images.shape[1:] != self.shape:
            raise InputError(
                f"{where} has pictures of {_size(images.shape[1:])}, but the schema's are "
                f"{_size(self.shape)} (channels, rows, columns); bring them to one size"
            )
        least, largest = self.image.range
        # Not within, so that NaN is not either.
        wrong = ~((images >= least) & (images <= largest)).all(axis=(1, 2, 3))
        if wrong.any():
            raise InputError(
                f"record {int(wrong.argmax()) + 1} of {where} has a pixel outside of the schema's "
                f"range, {least:g} to {largest:g}; mend the record, or the schema that all share"
            )
        return ((images.astype(np.float64) - least) / (largest - least)).astype(np.float32)


def parse(text: str) -> Schema:
    """Return the schema that a text is. Raises InputError if it is none."""

    def refusal(reason: str) -> InputError:
        return InputError(f"data.public-schema is no schema: {reason}; see docs/how-to/train.md")

    with reading.damage(refusal):
        try:
            return Schema.model_validate(reading.toml_of(text.encode()))
        except ValidationError as error:
            raise refusal(explain(error)) from None


def load(path: str) -> Schema:
    """Return the schema of a client's own copy. Raises InputError if there is none."""
    try:
        text = reading.content(Path(path), reading.MOST_TOML).decode()
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the schema '{path}': {error}; give a TOML file") from None
    return parse(text)


def difference(own: Schema, named: Schema) -> str:
    """Return the first thing in which two schemas differ, in words; "" for none."""
    ours, theirs = _items(own), _items(named)
    for item in {**ours, **theirs}:
        if ours.get(item) != theirs.get(item):
            return f"{item} is {theirs.get(item)} in the run's, and {ours.get(item)} in its own"
    if list(own.columns) != list(named.columns):
        return "the columns are in another order"
    return ""


def _items(schema: Schema) -> dict[str, object]:
    """Return all that a schema says, each by the name that it has in the file."""
    said = schema.model_dump(exclude={"columns", "image", "text"})
    columns = {f"the column '{name}'": column for name, column in schema.columns.items()}
    kinds = {"image": schema.image, "text": schema.text}
    inner = {
        f"{kind}.{name}": value
        for kind, table in kinds.items()
        if table is not None
        for name, value in table.model_dump().items()
    }
    return {**said, **columns, **inner}


def _one_hot(name: str, values: Sequence[str], categories: Sequence[str], where: str) -> Floats:
    text = np.asarray(values, dtype=np.str_)
    hot = text[:, None] == np.asarray(categories)
    known = hot.any(axis=1)
    if not known.all():
        row = int(known.argmin())
        raise InputError(
            f"record {row + 1} of {where} has {_value(text[row])} in the column '{name}', but the "
            f"schema's values are {_shortened(categories)}; mend the record, or the schema that "
            "all share"
        )
    return hot.astype(np.float32)


def _scaled(name: str, values: Sequence[str], least: float, largest: float, where: str) -> Floats:
    numbers = np.full(len(values), np.nan)
    for row, value in enumerate(values):
        with contextlib.suppress(ValueError):
            numbers[row] = float(value)
    within = (numbers >= least) & (numbers <= largest)  # NaN is not
    if not within.all():
        row = int(within.argmin())
        raise InputError(
            f"record {row + 1} of {where} has {_value(values[row])} in the column '{name}', but "
            f"the schema's range is {least:g} to {largest:g}; mend the record, or the schema that "
            "all share"
        )
    return ((numbers - least) / (largest - least)).astype(np.float32)[:, None]


def _value(text: str) -> str:
    return "no value" if text.strip().lower() in MISSING else f"'{brief(text, LONGEST)}'"


def _shortened(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _size(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))
