"""The public schema that the records of all clients share, and against which each checks its own.

It says how values become features, so that no client computes a minimum, a mean or a list of
categories on its records, which would be an unprotected release.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError, field_validator, model_validator

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.common.tables import TomlTable, explain
from fedsim.learning.data.columns import (
    Column,
    Problem,
    Range,
    check_range,
    column_of,
    number_of,
    problems_of,
    shortened,
)
from fedsim.learning.data.dataset import CsvFormat, Decimal, Encoding, Separator, TargetRange

Floats = npt.NDArray[np.float32]

MARK = "FROM RECORDS"
"""Mark of a proposed schema's line that discloses something of the records."""


class Image(TomlTable):
    """The shape and range of pictures."""

    shape: Annotated[list[Annotated[int, Field(ge=1, le=4096)]], Field(min_length=3, max_length=3)]
    range: Range = Field(default=[0.0, 255.0])


class Text(TomlTable):
    """The column of texts, and the number of tokens to which each is cut or padded."""

    column: str = "text"
    length: Annotated[int, Field(ge=1, le=4096)]


class File(TomlTable):
    """How the files of all clients write a table."""

    separator: Separator = ","
    decimal: Decimal = "."
    encoding: Encoding = "utf-8"

    @property
    def form(self) -> CsvFormat:
        return CsvFormat(self.separator, self.decimal, self.encoding)


class Schema(TomlTable):
    """The public description of the records of all clients; identifiers are never features."""

    classes: Annotated[list[str], Field(max_length=1000)] = Field(default_factory=list)
    target: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    label: str = "label"
    unlabelled: Literal["refuse", "drop"] = "refuse"
    identifiers: list[str] = Field(default_factory=list)
    columns: dict[str, Column] = Field(default_factory=dict)
    image: Image | None = None
    text: Text | None = None
    file: File = File()

    @field_validator("columns", mode="before")
    @classmethod
    def _each_is_of_one_kind(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            raise ValueError("columns is a table: give each column its own line")
        columns = {}
        for name, each in given.items():
            try:
                columns[name] = column_of(each)
            except ValidationError as error:
                raise ValueError(f"column '{name}': {explain(error)}") from None
            except ValueError as error:
                raise ValueError(f"column '{name}': {error}") from None
        return columns

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Self:
        if [bool(self.columns), self.image is not None, self.text is not None].count(True) != 1:
            raise ValueError(
                "a schema has [columns] of a table, [image] or [text]: give exactly one"
            )
        if self.target is not None and self.classes:
            raise ValueError("a schema has classes, or the target of a regression: give one")
        if self.target is not None:
            check_range(self.target)
        elif len(self.classes) < 2 and (self.classes or self.text is None):
            raise ValueError(
                "classes names fewer than two labels; name each, or give the target's range "
                "(only [text] may have neither)"
            )
        if len(set(self.classes)) < len(self.classes):
            raise ValueError("classes has a label twice; name each once")
        if self.label in self.columns:
            raise ValueError(f"column '{self.label}' is the label, and not a feature; remove it")
        for name in self.identifiers:
            if name in (self.label, *self.columns):
                raise ValueError(
                    f"column '{name}' is an identifier, from which a model would learn to "
                    "recognise people; remove it from the columns"
                )
        if self.image is not None:
            check_range(self.image.range)
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
        each = (column.features(name) for name, column in self.columns.items())
        return tuple(feature for features in each for feature in features)

    @property
    def labelled(self) -> bool:
        return bool(self.classes) or self.target is not None

    def numbers(
        self, labels: Sequence[str], name: str
    ) -> tuple[npt.NDArray[np.int64], list[Problem]]:
        """Return each label's number, int64 [N], 0 for invalid ones, and the problems."""
        if self.target is None:
            places = {label: number for number, label in enumerate(self.classes)}
            numbers = np.array([places.get(label, -1) for label in labels], dtype=np.int64)
            message = f"the label {{first}} is not one of {shortened(self.classes)}"
            unknown = problems_of(name, labels, [(numbers < 0, self.unlabelled, message)])
            return np.maximum(numbers, 0), unknown
        least, largest = self.target
        values = np.array([number_of(label) for label in labels], dtype=np.float64)
        wrong = ~np.isfinite(values)
        outside = ~wrong & ((values < least) | (values > largest))
        cases = [
            (wrong, self.unlabelled, "{first} is not a number"),
            (outside, "clip", f"outside of the range {least:g} to {largest:g}: {{first}}"),
        ]
        steps = TargetRange(least, largest).steps(np.where(wrong, least, values))
        return steps, problems_of(name, labels, cases)

    def table(
        self, columns: Mapping[str, Sequence[str]], where: str
    ) -> tuple[Floats, list[Problem]]:
        """Return the features of a table, float32 [N, features], and the problems of its values.

        columns: as text, [N] by name; columns that the schema does not have are ignored.
        Raises InputError if columns are missing.
        """
        if missing := [name for name in self.columns if name not in columns]:
            raise InputError(
                f"{where} has no column {shortened([repr(name) for name in missing])}, which the "
                f"schema has; it has {shortened(list(columns))}"
            )
        read = [column.read(name, columns[name]) for name, column in self.columns.items()]
        problems = [problem for _, own in read for problem in own]
        return np.concatenate([features for features, _ in read], axis=1), problems

    def texts(self, columns: Mapping[str, Sequence[str]], where: str) -> Sequence[str]:
        """Return the text of each record, [N]. Raises InputError if it is missing or empty."""
        assert self.text is not None
        name = self.text.column
        if name not in columns:
            raise InputError(
                f"{where} has no column '{name}', which the schema has; it has "
                f"{shortened(list(columns))}"
            )
        if "" in columns[name]:
            row = 1 + list(columns[name]).index("")
            raise InputError(f"record {row} of {where} has no text in the column '{name}'")
        return columns[name]

    def pixels(self, images: npt.NDArray[Any], where: str) -> Floats:
        """Return pictures float32 [N, C, H, W] between 0 and 1.

        images: numbers [N, C, H, W].
        Raises InputError for another shape, or a pixel outside of the schema's range.
        """
        assert self.image is not None
        if images.shape[1:] != self.shape:
            raise InputError(
                f"{where} has pictures of {images.shape[1:]}, but the schema's are {self.shape} "
                "(channels, rows, columns); scale them to that size"
            )
        least, largest = self.image.range
        # Negated, so that NaN counts as outside.
        wrong = ~((images >= least) & (images <= largest)).all(axis=(1, 2, 3))
        if wrong.any():
            raise InputError(
                f"record {int(wrong.argmax()) + 1} of {where} has a pixel outside of the schema's "
                f"range, {least:g} to {largest:g}; correct the record, or the schema of all clients"
            )
        return ((images.astype(np.float64) - least) / (largest - least)).astype(np.float32)


def parse(text: str, source: str = "data.public-schema") -> Schema:
    """Return the schema in a text.

    Args:
        source: key or file that the text is from, for errors.

    Raises InputError for another text.
    """

    def refusal(reason: str) -> InputError:
        return InputError(f"{source} is not a schema: {reason}; see docs/how-to/own-records.md")

    with reading.damage(refusal):
        try:
            return Schema.model_validate(reading.toml_of(text.encode()))
        except ValidationError as error:
            raise refusal(explain(error)) from None


def load(path: str) -> Schema:
    """Return the schema in a client's own file.

    Raises InputError if the file cannot be read, or is not a schema.
    """
    try:
        text = reading.content(Path(path), reading.MOST_TOML).decode()
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the schema '{path}': {error}; give a TOML file") from None
    return parse(text, f"'{path}'")


def difference(own: Schema, named: Schema) -> str:
    """Return the first difference between two schemas in words; "" for equal ones."""
    ours, theirs = (_items(each.model_dump(by_alias=True)) for each in (own, named))
    for item in {**ours, **theirs}:
        if ours.get(item) != theirs.get(item):
            run, client = (
                repr(each[item]) if item in each else "not set" for each in (theirs, ours)
            )
            return f"{item} is {run} in the run's schema, but {client} in the client's"
    return "the columns are in another order" if list(own.columns) != list(named.columns) else ""


def _items(table: Mapping[str, Any], inside: str = "") -> dict[str, Any]:
    """Return the entries of nested tables by dotted names."""
    items: dict[str, Any] = {}
    for name, value in table.items():
        named = f"{inside}{name}"
        items |= _items(value, f"{named}.") if isinstance(value, dict) else {named: value}
    return items
