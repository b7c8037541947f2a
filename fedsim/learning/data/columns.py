"""The columns of a table: the public schema of each, and how a record's values become features."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from fedsim.common.foreign_text import brief
from fedsim.common.tables import TomlTable

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

MISSING = ("", "?", "na", "nan", "none", "null")
"""Texts that mean a missing value, in any case."""

LONGEST = 60
"""Characters of a value that a message shows."""

SHOWN = 10
"""Number of names that a message shows."""

LARGEST = 1e15
"""Largest end of a range: about a tenth of the whole numbers that float64 holds exactly."""

FIRST = 5
"""Number of rows that a message names for one problem."""

Range = Annotated[list[float], Field(min_length=2, max_length=2)]
Categories = Annotated[list[str], Field(min_length=2, max_length=1000)]


@dataclass(frozen=True)
class Problem:
    """Records [N] whose value the schema does not take as it is.

    They are left out (drop), or used with another value (changed), or else refused.
    """

    column: str
    rows: Mask
    message: str
    drop: bool
    changed: str = ""

    @property
    def refuses(self) -> bool:
        return not self.drop and not self.changed

    @property
    def in_short(self) -> str:
        """The column, the number of its records, and what becomes of them."""
        count = int(self.rows.sum())
        return f"column '{self.column}' ({count:,} record{'s' * (count > 1)}, {self.changed})"

    def __str__(self) -> str:
        numbers = np.flatnonzero(self.rows) + 1
        rows = ", ".join(map(str, numbers[:FIRST]))
        more = ", …" if len(numbers) > FIRST else ""
        which = f"{len(numbers):,} records: {rows}{more}" if len(numbers) > 1 else f"record {rows}"
        changed = f", {self.changed}" if self.changed else ""
        return f"column '{self.column}': {self.message} ({which}){changed}"


CHANGED: dict[object, str] = {"clip": "clipped to the range", "other": "read as other"}


def problems_of(
    name: str, values: Sequence[str], cases: Sequence[tuple[Mask, object, str]]
) -> list[Problem]:
    """Return the problems of a column's values [N].

    cases: the rows of each kind of value, its rule in the schema, and a message, in which {first}
    stands for the first such value.
    """
    problems = []
    for rows, rule, message in cases:
        # A missing value with a feature of its own is not changed.
        if rows.any() and rule != "category":
            first = f"'{brief(values[int(rows.argmax())], LONGEST)}'"
            changed = "" if rule in ("refuse", "drop") else CHANGED.get(rule, f"read as {rule}")
            text = message.replace("{first}", first)
            problems.append(Problem(name, rows, text, rule == "drop", changed))
    return problems


class _Column(TomlTable):
    """Base class of columns."""

    placeholders: list[str] = Field(default_factory=list)
    """Texts that mean a missing value in this column, besides `MISSING`."""


class NumberColumn(_Column):
    """Numbers in a range, which become a feature from -1 to 1, with rules for other values.

    Features around 0 need fewer rounds than features from 0 to 1, whose common part dominates
    every gradient.
    """

    lowest: ClassVar[float] = -1.0
    range: Range
    unit: str = ""
    missing: Literal["refuse", "drop", "category"] | float = "refuse"
    outside: Literal["refuse", "drop", "clip"] = "refuse"

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        check_range(self.range)
        if isinstance(self.missing, float) and not self.range[0] <= self.missing <= self.range[1]:
            raise ValueError(f"missing is {self.missing:g}, outside of the range {self.range}")
        return self

    def features(self, name: str) -> list[str]:
        return [name, *([f"{name}=missing"] if self.missing == "category" else [])]

    def values(self, features: Floats) -> npt.NDArray[np.float64]:
        """Return the numbers [N] that became these features [N], to 7 digits."""
        least, largest = self.range
        share = (features.astype(np.float64) - self.lowest) / (1 - self.lowest)
        return least + share * (largest - least)

    def read(self, name: str, values: Sequence[str]) -> tuple[Floats, list[Problem]]:
        """Return the features, float32 [N, f], and the problems of values [N] given as text."""
        numbers = np.array([number_of(value) for value in values], dtype=np.float64)
        least, largest = self.range
        outside = f"outside of the range {least:g} to {largest:g}: {{first}}"
        absent = is_missing(values, self.placeholders)
        cases = [
            (absent, self.missing, "no value"),
            (~absent & np.isnan(numbers), "refuse", "not a number: {first}"),
            (~absent & ((numbers < least) | (numbers > largest)), self.outside, outside),
        ]
        instead = self.missing if isinstance(self.missing, float) else (least + largest) / 2
        filled = np.clip(np.where(absent | np.isnan(numbers), instead, numbers), least, largest)
        share = (filled - least) / (largest - least)
        blocks = [self.lowest + (1 - self.lowest) * share]
        if self.missing == "category":
            blocks.append(absent.astype(np.float64))
        return np.stack(blocks, axis=1).astype(np.float32), problems_of(name, values, cases)


class Values(_Column):
    """One of several values, each of which becomes a feature, with rules for other values."""

    values: Categories
    missing: str = "refuse"
    other: Literal["refuse", "drop", "other"] = "refuse"

    @model_validator(mode="after")
    def _is_a_list(self) -> Self:
        if len(set(self.values)) < len(self.values):
            raise ValueError("values has a value twice; name each once")
        if self.missing not in ("refuse", "drop", "category", *self.values):
            raise ValueError(
                f"missing is '{self.missing}'; give refuse, drop, category or one of the values"
            )
        return self

    def features(self, name: str) -> list[str]:
        more = ["missing"] * (self.missing == "category") + ["other"] * (self.other == "other")
        return [f"{name}={value}" for value in (*self.values, *more)]

    def read(self, name: str, values: Sequence[str]) -> tuple[Floats, list[Problem]]:
        """Return the features, float32 [N, f], and the problems of values [N] given as text."""
        place = {value: number for number, value in enumerate(self.values)}
        places = np.array([place.get(value, -1) for value in values], dtype=np.intp)
        # A listed value is not missing, whatever its name.
        absent = is_missing(values, self.placeholders) & (places < 0)
        other = ~absent & (places < 0)
        places[absent] = place.get(self.missing, -1)
        hot = np.zeros((len(values), len(place)), dtype=np.float32)
        hot[places >= 0, places[places >= 0]] = 1
        cases = [
            (absent, self.missing, "no value"),
            (other, self.other, f"{{first}} is not one of {shortened(self.values)}"),
        ]
        blocks: list[npt.NDArray[Any]] = [hot]
        if self.missing == "category":
            blocks.append(absent[:, None])
        if self.other == "other":
            blocks.append(other[:, None])
        features = np.concatenate(blocks, axis=1, dtype=np.float32)
        return features, problems_of(name, values, cases)


Column = NumberColumn | Values
KINDS: dict[str, type[Column]] = {"range": NumberColumn, "values": Values}


def column_of(given: Any) -> Column:
    """Return the column of a list or a table in a schema."""
    if isinstance(given, list):
        if given and isinstance(given[0], str):
            return Values(values=given)
        return NumberColumn(range=given)
    if not isinstance(given, dict):
        raise ValueError("a column is [least, largest], a list of values, or a table")
    named = [kind for key, kind in KINDS.items() if key in given]
    if len(named) != 1:
        raise ValueError(f"a column's table needs exactly one of {', '.join(KINDS)}")
    return named[0].model_validate(given)


def check_range(ends: Sequence[float]) -> None:
    """Raise ValueError if the ends of a range are not in order, or too large."""
    if not ends[0] < ends[1]:
        raise ValueError(f"its range is {list(ends)}; give [least, largest]")
    if max(map(abs, ends)) > LARGEST:
        raise ValueError(f"its range {list(ends)} exceeds {LARGEST:g}; narrow it")


def shortened(names: Sequence[str], most: int = SHOWN) -> str:
    """Return the first names of a list, and the number of further ones."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def is_missing(values: Sequence[str], placeholders: Collection[str] = ()) -> Mask:
    """Return which texts [N] mean a missing value: those of `MISSING`, and the placeholders."""
    absent = {
        value
        for value in set(values)
        if value.strip().lower() in MISSING or value.strip() in placeholders
    }
    if not absent:
        return np.zeros(len(values), dtype=bool)
    return np.array([value in absent for value in values], dtype=bool)


def text_of(value: object) -> str:
    """Return a value of a column as a reader sees it."""
    return f"{value:.6g}" if isinstance(value, int | float | np.number) else str(value)


def number_of(value: str) -> float:
    """Return the number in a text; NaN for another text, such as 1_000."""
    try:
        return np.nan if "_" in value else float(value)
    except ValueError:
        return np.nan
