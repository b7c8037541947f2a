"""A document, and the blocks of which it is made.

An audit or a study returns a document; `html`, `terminal` and `markdown` render it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from fedsim.reports.figures.plot import Plot  # matplotlib is slow to import

from fedsim.reports.document.wording import DASH

Entries = list[tuple[str, str]]


@dataclass(frozen=True)
class Mark:
    """A state; kind: good, open (cannot tell), caution or alarm, the class on the page."""

    kind: str
    text: str


@dataclass(frozen=True)
class Code:
    """A command or the name of a value, to type."""

    text: str


@dataclass(frozen=True)
class Link:
    """A link to a path relative to the page, or to # and an anchor of it."""

    text: str
    to: str


Words = str | Code | Link | Mark | Sequence[str | Code | Link | Mark]


@dataclass(frozen=True)
class Label:
    """A notice that every reader must see before the numbers."""

    kind: ClassVar = "label"
    title: str
    text: Words = ""
    alarming: bool = False


@dataclass(frozen=True)
class Prose:
    """A paragraph; small: a remark on the block above it."""

    kind: ClassVar = "prose"
    text: Words
    small: bool = False


@dataclass(frozen=True)
class Listing:
    """Names and values; several: in two columns."""

    kind: ClassVar = "listing"
    entries: Entries
    several: bool = False


@dataclass(frozen=True)
class Cell:
    """A cell of a table; style: "value" for measurements, "limit" for other numbers, "" else."""

    text: Words
    detail: str = ""
    mark: Mark | None = None
    style: str = "limit"


@dataclass(frozen=True)
class Line:
    """A row of a table, with a cell for each other heading."""

    name: Cell
    cells: Sequence[Cell]


@dataclass(frozen=True)
class Group:
    title: str
    lines: Sequence[Line]


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        headings: of the columns, first of the column with the rows' names; () for none.
        style: class on the page; a stacked table has a line for each cell on a narrow screen.
    """

    kind: ClassVar = "table"
    headings: Sequence[str]
    groups: Sequence[Group]
    style: str = "stacked"


@dataclass(frozen=True)
class Heading:
    """A heading, at the level of its part; anchor: its id, "" to make one from the text."""

    kind: ClassVar = "heading"
    text: str
    anchor: str = ""


@dataclass(frozen=True)
class Bullets:
    kind: ClassVar = "bullets"
    items: Sequence[Words]


@dataclass(frozen=True)
class Html:
    """A template of a page with its values; macros of `html` and the page's outline join them.

    figures: by the names under which the template places them, as `drawn(NAME)`.
    """

    kind: ClassVar = "html"
    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    figures: "Mapping[str, Figure]" = field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """A figure; name: of its file, without an ending, and prefix of the ids in its SVG."""

    kind: ClassVar = "figure"
    name: str
    drawing: "Plot"
    title: str
    caption: str


@dataclass(frozen=True)
class Part:
    """Blocks with their own heading; folded: at a click; heads: the title is in the contents."""

    kind: ClassVar = "part"
    title: str
    blocks: "Sequence[Block]"
    folded: bool = False
    heads: bool = True
    anchor: str = ""


@dataclass(frozen=True)
class Bar:
    """The adversary's share of right answers at one vantage point, with its limit.

    Attributes:
        right: the measured share of right answers, in [0, 1]; None: not measured.
        limit: the largest share that theory allows; 1: no limit, None: unknown.
        how: words ahead of the measured share.
        by: source of the limit.
        tells: whether its numbers stand beside it as text, where no table has them.
    """

    name: str
    mark: Mark
    right: float | None = None
    interval: tuple[float, float] | None = None
    limit: float | None = None
    remark: str = ""
    how: str = "right in"
    by: str = "theory"
    tells: bool = True


@dataclass(frozen=True)
class Bars:
    """A first screen's figure, from guessing to certainty."""

    kind: ClassVar = "bars"
    bars: Sequence[Bar]
    caption: str


Block = Prose | Listing | Table | Heading | Bullets | Label | Html | Figure | Bars | Part


@dataclass(frozen=True)
class FirstScreen:
    """The first screen of a page.

    Attributes:
        answer: sentences; the first answers the reader's question.
        release: whether it may be released, in a sentence ahead of the answer; "" where nothing is.
        figure: None if the page has no vantage point.
        table: three to five rows.
        note: what the table's columns mean.
        gate: numbers that a release gate can test, with their names.
    """

    answer: Sequence[Words]
    release: str = ""
    alarming: bool = False
    figure: Bars | Figure | None = None
    table: Table | None = None
    note: str = ""
    gate: Entries = field(default_factory=list)
    steps: Sequence[Words] = ()
    sign_off: Entries = field(default_factory=list)


@dataclass(frozen=True)
class Document:
    """A page.

    Attributes:
        first: the first screen, ahead of the blocks.
        footer: author of the page; "" for this version of fedsim.
    """

    title: str
    kind: str
    heading: str
    first: FirstScreen
    blocks: Sequence[Block]
    note: Words = ""
    footer: Words = ""


def tabulated(
    headings: Sequence[str], rows: Iterable[Sequence[str | None]], style: str = "stacked"
) -> Table:
    """Return a table of texts; the first text of a row is its name, None is a dash."""
    lines = [
        Line(Cell(_or_dash(name)), [Cell(_or_dash(value), style="") for value in values])
        for name, *values in rows
    ]
    return Table(headings, [Group("", lines)], style)


def _or_dash(text: str | None) -> str:
    return DASH if text is None else text
