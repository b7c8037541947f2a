"""What an answer says, and the blocks of which a page is made.

Every kind of answer returns a `Told`; `html` and `terminal` show it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
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
class Table:
    """A table.

    Attributes:
        headings: of the columns, first of the column with the rows' names; all "" for none.
        rows: cells, first the name.
        style: class on the page; a stacked table has a line for each cell on a narrow screen.
    """

    kind: ClassVar = "table"
    headings: Sequence[str]
    rows: Sequence[Sequence[Words]]
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
        cells: of the observer's line in the table, behind its name.
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
    cells: Sequence[str] = ()


@dataclass(frozen=True)
class Bars:
    """A first screen's figure, from guessing to certainty."""

    kind: ClassVar = "bars"
    bars: Sequence[Bar]
    caption: str


Block = Prose | Listing | Table | Heading | Bullets | Label | Html | Figure | Bars | Part


@dataclass(frozen=True, kw_only=True)
class Told:
    """What an answer says, once: the terminal, the page and a notebook show it.

    Attributes:
        kind: in words, such as "Live audit".
        name: of the run, the audit or the study.
        report: report.json, with the numbers that a release gate can test.
        played: how much was run or observed, in a few words.
        note: what was done, below the heading of the page.
        release: whether it may be released, ahead of the answer; "" where nothing is.
        answer: sentences; the first answers the reader's question.
        brief: in place of the answer where its numbers stand in the table beside it; "" for none.
        alarms: what contradicts theory or a claim, in sentences, the gravest first.
        observers: of the figure of right answers.
        headings: of the table of the observers, first of their names; () for no such table.
        caption: of the figure.
        table: of three to five rows, in place of that of the observers.
        legend: what the columns mean.
        cautions: why the numbers protect no one, or may not be shown; no screen leaves them out.
        label: what the numbers are, for a terminal and a notebook; the page has it in a section.
        remarks: for a terminal, which has no sections; the last gives way first.
        more: further blocks for a terminal that is asked for all.
        steps: what the reader has to decide or do.
        sections: of the page, made where they are needed.
        data, date, limits, purpose: for the sign-off.
        footer: author of the page; "" for this version of fedsim.
    """

    kind: str
    name: str
    report: Mapping[str, Any] = field(default_factory=dict)
    played: str = ""
    note: str = ""
    release: str = ""
    answer: Sequence[Words] = ()
    brief: str = ""
    alarms: Sequence[str] = ()
    alarming: bool = False
    observers: Sequence[Bar] = ()
    headings: Sequence[str] = ()
    caption: str = ""
    table: Table | None = None
    legend: str = ""
    cautions: Sequence[str] = ()
    label: str = ""
    remarks: Sequence[str] = ()
    more: "Callable[[], Sequence[Block]]" = list
    steps: Sequence[Words] = ()
    sections: "Callable[[], Sequence[Block]]" = list
    data: str = ""
    date: str = ""
    limits: str = ""
    purpose: str = ""
    footer: Words = ""

    @property
    def observed(self) -> Table | None:
        """The table of the first screen."""
        rows = [[f"{each.name[:1].upper()}{each.name[1:]}", *each.cells] for each in self.observers]
        return tabulated(self.headings, rows) if self.headings else self.table


def tabulated(
    headings: Sequence[str], rows: Iterable[Sequence[Words | None]], style: str = "stacked"
) -> Table:
    """Return a table; the first cell of a row is its name, None is a dash."""
    return Table(
        headings, [[DASH if each is None else each for each in row] for row in rows], style
    )


def figures_in(blocks: Iterable[Block]) -> dict[str, Figure]:
    """Return the figures of blocks by name, those within parts and templates too."""
    found: dict[str, Figure] = {}
    for block in blocks:
        if isinstance(block, Figure):
            found[block.name] = block
        elif isinstance(block, Part):
            found |= figures_in(block.blocks)
        elif isinstance(block, Html):
            found |= block.figures
    return found
