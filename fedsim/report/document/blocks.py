"""Sections of a page, and the blocks of which they are made."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from matplotlib.figure import Figure as Drawing

Entries = list[tuple[str, str]]
"""Names and values, worded."""


@dataclass(frozen=True)
class Mark:
    """How a measurement stands to its limit.

    Attributes:
        kind: good, open where it cannot be told, caution or alarm; its class on the page.
        text: a few words, without a full stop.
    """

    kind: str
    text: str


@dataclass(frozen=True)
class Label:
    """What every reader must know before the numbers.

    Attributes:
        title: a sentence with its full stop.
        text: why, in sentences.
    """

    title: str
    text: str


@dataclass(frozen=True)
class Row:
    """One measured thing, its limit, and what both mean.

    Attributes:
        name: a question, or what was measured.
        answer: the measured value, worded.
        limit: what theory allows, worded; a dash for no limit.
        reading: what a reader may conclude, in sentences.
        detail: below the answer in small print, such as its interval; "" for nothing.
        mark: ahead of the reading; None where nothing limits the answer.
    """

    name: str
    answer: str
    limit: str
    reading: str
    detail: str = ""
    mark: Mark | None = None


@dataclass(frozen=True)
class Prose:
    """A paragraph.

    Attributes:
        kind: by which the template lays it out.
        text: sentences.
        small: whether it is a remark on what stands above it.
    """

    kind: ClassVar = "prose"
    text: str
    small: bool = False


@dataclass(frozen=True)
class Listing:
    """Names and values.

    Attributes:
        kind: by which the template lays it out.
        entries: in the order of the page.
        several: whether they stand in two columns.
    """

    kind: ClassVar = "listing"
    entries: Entries
    several: bool = False


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: worded.
        detail: below it, in small print; "" for nothing.
        mark: ahead of it.
        style: "value" of what was measured, "limit" of other numbers, "" of words.
    """

    text: str
    detail: str = ""
    mark: Mark | None = None
    style: str = "limit"


@dataclass(frozen=True)
class Line:
    """A row of a table.

    Attributes:
        name: its first cell, which heads the others.
        cells: one for each other heading of the table.
        here: whether it is the one that the page is about.
    """

    name: Cell
    cells: Sequence[Cell]
    here: bool = False


@dataclass(frozen=True)
class Group:
    """Rows of a table below a heading of their own.

    Attributes:
        title: the heading; "" for none.
        lines: in the order of the page.
    """

    title: str
    lines: Sequence[Line]


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        kind: by which the template lays it out.
        headings: of the columns, that of the rows' names first.
        groups: in the order of the page.
        style: its class on the page; "" for none.
        empty: what stands where there is no row.
    """

    kind: ClassVar = "table"
    headings: Sequence[str]
    groups: Sequence[Group]
    style: str = ""
    empty: str = ""


@dataclass(frozen=True)
class Heading:
    """Of a part of a section.

    Attributes:
        kind: by which the template lays it out.
        text: below the section's own heading by one level.
    """

    kind: ClassVar = "heading"
    text: str


@dataclass(frozen=True)
class Place:
    """Where a section's figure stands.

    Attributes:
        kind: by which a page finds it; no template lays it out.
        figure: the figure's name.
        otherwise: the paragraph that stands there without the figure; "" for none.
    """

    kind: ClassVar = "place"
    figure: str
    otherwise: str = ""


Block = Prose | Listing | Table | Heading | Place


@dataclass(frozen=True)
class Figure:
    """A figure with what stands below it.

    Attributes:
        name: that of its file, without an ending, and the beginning of the ids in its SVG.
        drawing: by `fedsim.report.figures`.
        title: a few words with a full stop.
        caption: sentences.
    """

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
