"""Answers and blocks on the terminal, where text is never markup."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO

import rich.table
from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.text import Text

from fedsim.reports.document.blocks import (
    Block,
    Code,
    Heading,
    Label,
    Link,
    Listing,
    Mark,
    Prose,
    Table,
    Told,
    Words,
    tabulated,
)
from fedsim.reports.document.wording import counted

COLOURS = {"good": "green", "caution": "yellow", "alarm": "bold red", "note": "dim"}
KEPT = 14
"""Least width of a column, in characters, so that no short number or word is cut."""


MOST_LINES = 19
"""Lines of a result on 80 columns or more, beside the path of its page, which follows."""


def told(
    result: Told, command: str = "", seconds: float | None = None, *, verbose: bool = False
) -> RenderableType:
    """Return what an answer says, the answer first; the last line but one decides.

    Args:
        command: command that made it, as typed; "" for its name.
        seconds: time that it took; None if unknown.
        verbose: whether it may take more lines than a screen has.
    """
    count = len(result.alarms)
    ending = f"{counted(count, 'alarm')}, {len(result.steps) or 'nothing'} to decide."
    began = f"{command or in_short(result.name)}    {result.played}"
    took = "" if seconds is None else f"    {seconds:.0f} s"
    return Fitted(tuple(_paragraphs(result, f"{began}{took}\n", verbose)), ending, verbose)


Paragraph = tuple[int, RenderableType]
"""A part of a result, behind its rank: those of the highest give way first, those of 0 never."""

ALARM, STEP, REMARK, LABEL, BRIEF, LEGEND = 1, 2, 3, 97, 98, 99
"""Ranks; of further remarks, the numbers behind that of the first."""


@dataclass(frozen=True)
class Fitted:
    """A result; without `verbose`, what has no room on the screen is left out."""

    paragraphs: tuple[Paragraph, ...]
    ending: str
    verbose: bool = False

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        kept = [(*each, len(console.render_lines(each[1], options))) for each in self.paragraphs]
        while not self.verbose and sum(lines for *_, lines in kept) >= MOST_LINES:
            place = max(range(len(kept)), key=lambda at: (kept[at][0], at))
            if not kept[place][0]:
                break
            kept.pop(place)
        yield from (shown for _, shown, _ in kept)
        more = " More: add -v." * (len(kept) < len(self.paragraphs))
        yield Text(f"{self.ending}{more}")


def _paragraphs(told: Told, began: str, verbose: bool) -> Iterator[Paragraph]:
    alarms, gap = list(told.alarms), (0, Text(""))
    if len(alarms) > 1 and not verbose:
        alarms = [f"{text.partition('. ')[0].removesuffix('.')}." for text in alarms]
    yield 0, Text(began, "bold")
    for place, text in enumerate(alarms):
        yield ALARM * bool(place), Text(f"ALARM: {text}", "bold red")
    yield from [gap] * bool(alarms)
    if told.release:
        yield 0, Text(told.release)
    answer = [*enumerate(map(_plain, told.answer))]
    if told.brief:
        answer = []
        yield BRIEF, Text(told.brief)
    for place, text in answer:
        if not any(alarm.startswith(text.removesuffix(".")) for alarm in told.alarms):
            yield (REMARK + place) * bool(place), Text(text)
    if told.headings:
        yield gap
        yield 0, observers(told)
        yield gap
    elif told.table is not None:
        yield gap
        yield 0, table(told.table, ruled=False)
    if told.legend:
        yield LEGEND, Text(told.legend)
    for place, text in enumerate(told.remarks):
        yield REMARK + place, Text(text)
    yield from ((0, Text(text)) for text in told.cautions)
    if told.label:
        yield LABEL, Text(told.label)
    if verbose:
        yield from ((0, _shown(block)) for block in told.more())
    yield from ((STEP, Text(_plain(step))) for step in told.steps)


LONGEST_NAME = 60
"""Most characters of a name on a terminal."""


def in_short(name: str) -> str:
    """Return a name that a stranger may have chosen as a part of one line; of a path, the end."""
    words = " ".join((name.rpartition("/")[2] or name).split())
    return words if len(words) <= LONGEST_NAME else f"{words[: LONGEST_NAME - 1]}…"


def shown(*blocks: Block | RenderableType) -> RenderableType:
    return Group(*map(_shown, blocks))


def text(blocks: Sequence[Block | RenderableType]) -> str:
    """Return blocks as plain text of at most 100 columns, as a Python prompt shows a result."""
    console = Console(width=100, file=StringIO(), color_system=None)
    with console.capture() as captured:
        console.print(shown(*blocks), highlight=False, crop=False)
    return "\n".join(map(str.rstrip, captured.get().splitlines())).strip("\n")


def _shown(block: Block | RenderableType) -> RenderableType:
    match block:
        case Heading():
            return Text(f"\n{block.text}", "bold")
        case Prose():
            return Text(_plain(block.text), "dim" if block.small else "")
        case Label():
            colour = COLOURS["alarm"] if block.alarming else "bold"
            return Text(f"{block.title} {_plain(block.text)}".strip(), colour)
        case Listing():
            return table(tabulated(("", ""), block.entries))
        case Table():
            return table(block)
        case str() | Text() | rich.table.Table() | Group() | Fitted():
            return block
    raise TypeError(f"{type(block).__name__} has no place on the terminal")


def table(block: Table, title: str = "", *, ruled: bool = True) -> rich.table.Table:
    """Return a table as the terminal shows it: columns of numbers are flush right."""
    drawn = rich.table.Table(
        title=Text(title) if title else None,
        title_justify="left",
        show_header=any(block.headings),
        header_style="table.header" if ruled else "",
        box=box.SIMPLE_HEAD if ruled else None,
        pad_edge=ruled,
        padding=0 if ruled else (0, 1, 0, 0),
    )
    lines = [[_plain(cell).split("\n") for cell in row] for row in block.rows]
    for place, heading in enumerate(block.headings):
        column = [cells[place] for cells in lines]
        numbers = any(column) and all(map(_is_number, column))
        drawn.add_column(
            Text(heading),
            justify="right" if numbers else "left",
            min_width=_widest(column, numbers),
            overflow="fold",
        )
    for row in block.rows:
        drawn.add_row(*(Text(_plain(cell)) for cell in row))
    return drawn


def observers(told: Told) -> rich.table.Table:
    """Return the table of a result: a line for each observer with its cells and its state."""
    drawn = rich.table.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in told.headings:
        name = heading.lower().replace(" = ", "=")
        drawn.add_column(name, header_style="", overflow="fold", no_wrap=True)
    drawn.add_column("verdict", header_style="", overflow="fold")
    for each in told.observers:
        state = Text(each.mark.text.lower(), COLOURS.get(each.mark.kind, ""))
        drawn.add_row(*map(Text, (each.name, *each.cells)), state)
    return drawn


def _is_number(lines: Sequence[str]) -> bool:
    """Return whether a cell begins with a number, or is infinite, a dash or empty."""
    number = r"[≥≤<>−+ -]*([\d∞–](?!.*[a-z]{4})|inf$)"  # "3 rounds" is a text
    return not lines[0] or re.match(number, lines[0]) is not None


def _widest(column: Sequence[Sequence[str]], numbers: bool) -> int:
    lines = [line for cell in column for line in cell]
    pieces = lines if numbers else [word for line in lines for word in line.split()]
    return max((len(piece) for piece in pieces if len(piece) <= KEPT), default=0)


def _plain(words: Words) -> str:
    match words:
        case str():
            return words
        case Code() | Link() | Mark():
            return words.text
    return "".join(map(_plain, words))
