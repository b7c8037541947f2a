"""The columns of a table: what a public schema says of each, and how values become features.

A column is one of three kinds, and each says what becomes of values that do not fit:

    age = [17, 90]                                        # short for range = [17, 90]
    weight = { range = [30, 250], unit = "kg", missing = 75, outside = "clip" }
    ward = { values = ["A", "B"], other = "other", missing = "category" }
    admitted = { date = [2015-01-01, 2025-12-31], format = "%d.%m.%Y", parts = ["year", "days"] }

Every rule looks at one record alone, so that a record changes no other record's features.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from fedsim.common.foreign_text import brief
from fedsim.common.tables import Table

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

MISSING = ("", "?", "na", "nan", "none", "null")
"""What stands for a missing value, in whichever case."""

LONGEST = 60
"""Letters of a value that a message shows."""

SHOWN = 10
"""How many names a message shows where there may be hundreds."""

LARGEST = 1e15
"""The largest end of a range: about a tenth of what float64 counts in whole numbers."""

Range = Annotated[list[float], Field(min_length=2, max_length=2)]
Categories = Annotated[list[str], Field(min_length=2, max_length=1000)]


@dataclass(frozen=True)
class Problem:
    """Values of one column that the schema does not allow.

    Attributes:
        column: its name.
        rows: bool [N], the records that have such values.
        what: what is wrong, with the first such value.
        drop: whether the schema leaves such records out; otherwise they are refused.
    """

    column: str
    rows: Mask
    what: str
    drop: bool

    def __str__(self) -> str:
        numbers = np.flatnonzero(self.rows) + 1
        rows = ", ".join(map(str, numbers[:FIRST]))
        if len(numbers) == 1:
            return f"column '{self.column}': {self.what} (record {rows})"
        more = ", …" if len(numbers) > FIRST else ""
        return f"column '{self.column}': {self.what} ({len(numbers):,} records: {rows}{more})"


FIRST = 5
"""How many rows a message names of all that have one problem."""


class _Column(Table):
    """What is common to all columns: which problems leave a record out."""

    def _problems(
        self, name: str, values: Sequence[str], cases: Sequence[tuple[Mask, object, str]]
    ) -> Iterator[Problem]:
        """Yield a problem for each case that has records: its rows, its rule and its words."""
        for rows, rule, what in cases:
            if rows.any() and rule in ("refuse", "drop"):
                first = f"'{brief(values[int(rows.argmax())], LONGEST)}'"
                yield Problem(name, rows, what.format(first=first), rule == "drop")


class Numbers(_Column):
    """Numbers in a range, which become a feature from 0 to 1.

    Attributes:
        range: the least and the largest value, from public knowledge.
        unit: of the values, for people who read the schema.
        missing: "refuse", "drop" the record, a number to put there, or "category": a feature of
            its own says that there was none.
        outside: of the range: "refuse", "drop" the record, or "clip" the value to it.
    """

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
        """Return the names of the features."""
        return [name, *([f"{name}=missing"] if self.missing == "category" else [])]

    def read(self, name: str, values: Sequence[str]) -> tuple[Floats, list[Problem]]:
        """Return the features, float32 [N, f], and what is wrong with the values, [N] as text."""
        numbers = np.array([number_of(value) for value in values], dtype=np.float64)
        return self.scaled(name, values, numbers, "no number: {first}")

    def scaled(
        self, name: str, values: Sequence[str], numbers: npt.NDArray[np.float64], unreadable: str
    ) -> tuple[Floats, list[Problem]]:
        """Return the features of numbers [N] (NaN: not readable), and what is wrong with them."""
        least, largest = self.range
        absent = _missing(values)
        outside = ~absent & ((numbers < least) | (numbers > largest))
        cases = [
            (absent, self.missing, "no value"),
            (~absent & np.isnan(numbers), "refuse", unreadable),
            (outside, self.outside, f"outside of the range {least:g} to {largest:g}: {{first}}"),
        ]
        problems = list(self._problems(name, values, cases))
        instead = self.missing if isinstance(self.missing, float) else least
        filled = np.clip(np.where(np.isnan(numbers), instead, numbers), least, largest)
        blocks = [(filled - least) / (largest - least)]
        if self.missing == "category":
            blocks.append(absent.astype(np.float64))
        return np.stack(blocks, axis=1).astype(np.float32), problems


class Values(_Column):
    """One of some values, each of which becomes a feature that is 0 or 1.

    Attributes:
        values: the values, from public knowledge.
        missing: "refuse", "drop" the record, "category" for a feature of its own, or one of the
            values.
        other: a value that is not in the list: "refuse", "drop" the record, or "other" for a
            feature that all such values share.
    """

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
        """Return the names of the features."""
        more = [
            *(["missing"] if self.missing == "category" else []),
            *(["other"] if self.other == "other" else []),
        ]
        return [f"{name}={value}" for value in (*self.values, *more)]

    def read(self, name: str, values: Sequence[str]) -> tuple[Floats, list[Problem]]:
        """Return the features, float32 [N, f], and what is wrong with the values, [N] as text."""
        text = np.asarray(values, dtype=np.str_)
        listed = np.asarray(self.values)
        hot = text[:, None] == listed
        # A value that the schema lists is none that is missing, whatever it is called.
        absent = _missing(values) & ~hot.any(1)
        other = ~absent & ~hot.any(1)
        if self.missing in self.values:
            hot |= absent[:, None] & (listed == self.missing)
        cases = [
            (absent, self.missing, "no value"),
            (other, self.other, f"{{first}} is none of {shortened(self.values)}"),
        ]
        blocks = [hot]
        if self.missing == "category":
            blocks.append(absent[:, None])
        if self.other == "other":
            blocks.append(other[:, None])
        problems = list(self._problems(name, values, cases))
        return np.concatenate(blocks, axis=1).astype(np.float32), problems


PARTS = ("year", "month", "days")
"""What may be taken of a date: its year and days since the first day as numbers, and its month."""


class Dates(_Column):
    """Dates, of which parts become features.

    Attributes:
        date: the first and the last day, from public knowledge.
        format: how dates are written, as of Python's strptime; ISO 8601 by default.
        parts: "year" and "days" (since the first day) from 0 to 1, and "month", a feature each.
        missing: "refuse", "drop" the record, or "category" for a feature of its own.
        outside: of the days: "refuse", "drop" the record, or "clip" the date to them.
    """

    date: Annotated[list[date], Field(min_length=2, max_length=2)]
    format: str = "%Y-%m-%d"
    parts: Annotated[list[Literal["year", "month", "days"]], Field(min_length=1, max_length=3)] = (
        Field(default=["days"])
    )
    missing: Literal["refuse", "drop", "category"] = "refuse"
    outside: Literal["refuse", "drop", "clip"] = "refuse"

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if not self.date[0] < self.date[1]:
            raise ValueError("date is [first day, last day]; the first comes first")
        if len(set(self.parts)) < len(self.parts):
            raise ValueError("parts has a part twice; name each once")
        return self

    def features(self, name: str) -> list[str]:
        """Return the names of the features."""
        months = [f"{name}.month={month}" for month in range(1, 13)]
        parts = [months if part == "month" else [f"{name}.{part}"] for part in self.parts]
        more = [f"{name}=missing"] if self.missing == "category" else []
        return [*(feature for part in parts for feature in part), *more]

    def read(self, name: str, values: Sequence[str]) -> tuple[Floats, list[Problem]]:
        """Return the features, float32 [N, f], and what is wrong with the values, [N] as text."""
        first, last = self.date
        days = [_day(value, self.format) for value in values]
        ordinals = np.array([np.nan if day is None else day.toordinal() for day in days])
        span = Numbers(
            range=[float(first.toordinal()), float(last.toordinal())],
            missing="category" if self.missing == "category" else self.missing,
            outside=self.outside,
        )
        scaled, problems = span.scaled(name, values, ordinals, f"no date {self.format}: {{first}}")
        problems = [_of_days(problem, self.date) for problem in problems]
        within = [min(max(day or first, first), last) for day in days]
        absent = scaled[:, 1:]
        years = max(1, last.year - first.year)
        of_part = {
            "days": scaled[:, :1],
            "year": np.array([[(day.year - first.year) / years] for day in within]),
            "month": np.eye(12)[[day.month - 1 for day in within]],
        }
        # A date that is missing has no part, and says so by its own feature alone.
        there = 1 - absent if absent.size else np.ones((len(values), 1))
        blocks = [of_part[part].reshape(len(values), -1) * there for part in self.parts]
        return np.concatenate([*blocks, absent], axis=1).astype(np.float32), problems


Column = Numbers | Values | Dates


def column_of(given: Any) -> Column:
    """Return the column that a list or a table of a schema stands for."""
    if isinstance(given, list):
        if given and isinstance(given[0], str):
            return Values(values=given)
        return Numbers(range=given)
    if not isinstance(given, dict):
        raise ValueError("a column is [least, largest], a list of values, or a table")
    kinds: dict[str, type[Numbers] | type[Values] | type[Dates]]
    kinds = {"range": Numbers, "values": Values, "date": Dates}
    named = [kind for key, kind in kinds.items() if key in given]
    if len(named) != 1:
        raise ValueError(f"a column's table has one of {', '.join(kinds)}")
    return named[0].model_validate(given)


def check_range(ends: Sequence[float]) -> None:
    """Raise ValueError if the ends of a range are not in order, or too large."""
    if not ends[0] < ends[1]:
        raise ValueError(f"its range is {list(ends)}; give [least, largest]")
    if max(map(abs, ends)) > LARGEST:
        raise ValueError(f"its range {list(ends)} goes beyond {LARGEST:g}; narrow it")


def shortened(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many more there are."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _missing(values: Sequence[str]) -> Mask:
    return np.array([value.strip().lower() in MISSING for value in values], dtype=bool)


def number_of(value: str) -> float:
    """Return the number that a text is; NaN for another text."""
    try:
        return float(value)
    except ValueError:
        return np.nan


def _day(value: str, form: str) -> date | None:
    try:
        return datetime.strptime(value.strip(), form).date()
    except ValueError:
        return None


def _of_days(problem: Problem, ends: Sequence[date]) -> Problem:
    """Return a problem of a range of days in words for dates."""
    if not problem.what.startswith("outside"):
        return problem
    value = problem.what.rpartition(": ")[2]
    what = f"outside of {ends[0]} to {ends[1]}: {value}"
    return Problem(problem.column, problem.rows, what, problem.drop)
