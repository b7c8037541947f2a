"""A document, and the blocks of which it is made.

An audit or a study returns a document; `html`, `terminal` and `markdown` render it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing  # is slow to import

from fedsim.report.document.wording import DASH

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
class Code:
    """A command or the name of a value.

    Attributes:
        text: as it is typed.
    """

    text: str


@dataclass(frozen=True)
class Link:
    """A link.

    Attributes:
        text: what it says.
        to: a path relative to the page.
    """

    text: str
    to: str


Words = str | Code | Link | Mark | Sequence[str | Code | Link | Mark]
"""Text, with what stands out in it."""


@dataclass(frozen=True)
class Label:
    """What every reader must know before the numbers.

    Attributes:
        kind: by which the template lays it out.
        title: a sentence with its full stop; "" for none.
        text: why, in sentences.
        items: below the text.
        alarming: whether it is in the colours of an alarm.
    """

    kind: ClassVar = "label"
    title: str
    text: Words = ""
    items: Sequence[str] = ()
    alarming: bool = False


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
    text: Words
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

    text: Words
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
        headings: of the columns, that of the rows' names first; () for none.
        groups: in the order of the page.
        style: its class on the page; a stacked table has a line for each cell on a narrow screen.
    """

    kind: ClassVar = "table"
    headings: Sequence[str]
    groups: Sequence[Group]
    style: str = "stacked"


@dataclass(frozen=True)
class Heading:
    """A heading, of the level of the part that it stands in.

    Attributes:
        kind: by which the template lays it out.
        text: a few words.
        anchor: its id; "" for one made of the text.
    """

    kind: ClassVar = "heading"
    text: str
    anchor: str = ""


@dataclass(frozen=True)
class Bullets:
    """A list of sentences or links.

    Attributes:
        kind: by which the template lays it out.
        items: in the order of the page.
        numbered: whether their order matters.
    """

    kind: ClassVar = "bullets"
    items: Sequence[Words]
    numbered: bool = False


@dataclass(frozen=True)
class Progress:
    """A bar that shows how much is done.

    Attributes:
        kind: by which the template lays it out.
        share: in [0, 1].
        text: of what, for those who do not see the bar.
    """

    kind: ClassVar = "progress"
    share: float
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


@dataclass(frozen=True)
class Figure:
    """A figure with what stands above it.

    Attributes:
        kind: by which the template lays it out.
        name: that of its file, without an ending, and the beginning of the ids in its SVG.
        drawing: by `fedsim.report.figures`.
        title: a few words with a full stop; "" for none.
        caption: sentences.
    """

    kind: ClassVar = "figure"
    name: str
    drawing: "Drawing"
    title: str
    caption: str


@dataclass(frozen=True)
class Picture:
    """A figure that has been drawn.

    Attributes:
        kind: by which the template lays it out.
        name: that of its file, without an ending, and the beginning of the ids in its SVG.
        drawn: an SVG document, a PNG, or markup of a page.
        title: a few words with a full stop; "" for none.
        caption: sentences.
    """

    kind: ClassVar = "figure"
    name: str
    drawn: str | bytes
    title: str
    caption: str


@dataclass(frozen=True)
class Part:
    """Blocks below a heading of their own.

    Attributes:
        kind: by which the template lays it out.
        title: the heading.
        blocks: what stands below it, one level deeper.
        folded: whether it unfolds at a click.
        heads: whether the title stands in the list of contents.
        anchor: its id; "" for one made of the title.
    """

    kind: ClassVar = "part"
    title: str
    blocks: "Sequence[Block]"
    folded: bool = False
    heads: bool = True
    anchor: str = ""


Block = (
    Prose | Listing | Table | Heading | Bullets | Label | Progress | Place | Figure | Picture | Part
)


@dataclass(frozen=True)
class Document:
    """A page.

    Attributes:
        title: of the browser's window.
        kind: of page, in a few words.
        heading: what it is about.
        verdict: the answer, in sentences.
        blocks: all else, in the order of the page.
        alarming: whether the verdict is an alarm.
        note: below the heading, in small print.
        refresh: after how many seconds a browser reads the page again, and which; "" for never.
        footer: what wrote the page; "" for this version of fedsim.
    """

    title: str
    kind: str
    heading: str
    verdict: Sequence[Words]
    blocks: Sequence[Block]
    alarming: bool = False
    note: Words = ""
    refresh: str = ""
    footer: Words = ""


def tabulated(
    headings: Sequence[str], rows: Iterable[Sequence[str | None]], style: str = "stacked"
) -> Table:
    """Return a table of texts.

    Args:
        rows: the first text of each is its name; None is a dash.
        style: the table's class on the page.
    """
    lines = [
        Line(Cell(_or_dash(name)), [Cell(_or_dash(value), style="") for value in values])
        for name, *values in rows
    ]
    return Table(headings, [Group("", lines)], style)


def _or_dash(text: str | None) -> str:
    return DASH if text is None else text


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
