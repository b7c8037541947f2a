"""Sections of a page, and the blocks of which they are made."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from matplotlib.figure import Figure as Drawing

Entries = list[tuple[str, str]]
"""Names and values, worded."""


@dataclass(frozen=True)
class Mark:
    """How a measurement stands to its limit; kind is good, caution or alarm."""

    kind: str
    text: str


@dataclass(frozen=True)
class Label:
    """What every reader must know before the numbers."""

    title: str
    text: str


@dataclass(frozen=True)
class Row:
    """One measured thing, its limit, and what both mean."""

    name: str
    answer: str
    limit: str
    reading: str
    detail: str = ""
    mark: Mark | None = None


@dataclass(frozen=True)
class Prose:
    """A paragraph; small: a remark on what stands above it."""

    kind: ClassVar = "prose"
    text: str
    small: bool = False


@dataclass(frozen=True)
class Listing:
    """Names and values; several: in two columns."""

    kind: ClassVar = "listing"
    entries: Entries
    several: bool = False


@dataclass(frozen=True)
class Cell:
    """A cell of a table; detail: below it, in small print; mark: ahead of it.

    style: "value" of what was measured, "limit" of other numbers, "" of words.
    """

    text: str
    detail: str = ""
    mark: Mark | None = None
    style: str = "limit"


@dataclass(frozen=True)
class Line:
    """A row of a table; here: the one that the page is about."""

    name: Cell
    cells: Sequence[Cell]
    here: bool = False


@dataclass(frozen=True)
class Group:
    """Rows of a table below a heading of their own; "" for none."""

    title: str
    lines: Sequence[Line]


@dataclass(frozen=True)
class Table:
    """A table; style: its class on the page; empty: what stands where there is no row."""

    kind: ClassVar = "table"
    headings: Sequence[str]
    groups: Sequence[Group]
    style: str = ""
    empty: str = ""


@dataclass(frozen=True)
class Heading:
    """Of a part of a section."""

    kind: ClassVar = "heading"
    text: str


@dataclass(frozen=True)
class Place:
    """Where a section's figure of this name stands; otherwise: what stands there without it."""

    kind: ClassVar = "place"
    figure: str
    otherwise: str = ""


Block = Prose | Listing | Table | Heading | Place


@dataclass(frozen=True)
class Figure:
    """A figure with what stands below it; the name is that of its file."""

    name: str
    drawing: Drawing
    title: str
    caption: str


def of_row(row: Row) -> Line:
    """Return a row as a table has it: name, answer, limit, reading."""
    return Line(
        Cell(row.name),
        [
            Cell(row.answer, row.detail, style="value"),
            Cell(row.limit),
            Cell(row.reading, mark=row.mark, style=""),
        ],
    )
