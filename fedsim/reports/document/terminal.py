"""Blocks on the terminal, and as Markdown. On the terminal, text is never rich's markup."""

import html
import re
from collections.abc import Iterable, Sequence
from io import StringIO

import rich.table
from rich import box
from rich.console import Console, Group, RenderableType
from rich.text import Text

from fedsim.common import foreign_text
from fedsim.reports.document.blocks import (
    Block,
    Bullets,
    Cell,
    Code,
    Heading,
    Label,
    Link,
    Listing,
    Mark,
    Part,
    Prose,
    Table,
    Words,
)

COLOURS = {"good": "green", "caution": "yellow", "alarm": "bold red", "note": "dim"}
KEPT = 14
"""Least width of a column, in characters, so that no short number or word is cut."""


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
            return listing(block)
        case Table():
            return table(block)
        case str() | Text() | rich.table.Table() | Group():
            return block
    raise TypeError(f"{type(block).__name__} has no place on the terminal")


def listing(block: Listing, caption: str = "") -> rich.table.Table:
    drawn = rich.table.Table(show_header=False, caption=caption or None)
    for name, value in block.entries:
        drawn.add_row(Text(name), Text(value))
    return drawn


def table(
    block: Table, title: str = "", caption: str = "", dense: bool = False
) -> rich.table.Table:
    """Return a table as the terminal shows it: columns of numbers are flush right."""
    drawn = rich.table.Table(
        title=Text(title) if title else None,
        title_justify="left",
        caption=Text(caption) if caption else None,
        caption_justify="left",
        box=box.SIMPLE_HEAD if dense else box.HEAVY_HEAD,
        padding=0 if dense else (0, 1),
    )
    lines = [[line.name, *line.cells] for group in block.groups for line in group.lines]
    for place, heading in enumerate(block.headings):
        column = [_lines(cells[place]) for cells in lines]
        numbers = any(column) and all(map(_is_number, column))
        drawn.add_column(
            Text(heading),
            justify="right" if numbers else "left",
            min_width=_widest(column, numbers),
            overflow="fold",
        )
    for group in block.groups:
        drawn.add_section()
        for line in group.lines:
            drawn.add_row(*(Text("\n".join(_lines(cell))) for cell in [line.name, *line.cells]))
    return drawn


def observers(
    headings: Sequence[str], rows: Sequence[tuple[Sequence[str], Mark]]
) -> rich.table.Table:
    """Return the table of a result: a line for each observer with its cells and its state."""
    drawn = rich.table.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        drawn.add_column(heading, header_style="", overflow="fold", no_wrap=True)
    drawn.add_column("verdict", header_style="", overflow="fold")
    for cells, mark in rows:
        state = Text(mark.text.lower(), COLOURS.get(mark.kind, ""))
        drawn.add_row(*map(Text, cells), state)
    return drawn


def _lines(cell: Cell) -> list[str]:
    text = f"{cell.mark.text}. {_plain(cell.text)}" if cell.mark else _plain(cell.text)
    return [*text.split("\n"), *([cell.detail] if cell.detail else [])] if text else []


def _is_number(lines: Sequence[str]) -> bool:
    """Return whether a cell begins with a number, or is infinite, a dash or empty."""
    number = r"[≥≤<>−+ -]*([\d∞–](?!.*[a-z]{4})|inf$)"  # "3 rounds" is a text
    return not lines or re.match(number, lines[0]) is not None


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


MARKUP = re.compile(r"([\\`*_\[\]#|~]|^[-+=])")
"""Characters with a meaning in Markdown."""


def as_markdown(blocks: Iterable[Block], level: int = 1) -> str:
    return "\n".join(_rendered(block, level) for block in blocks)


def quoted(text: str) -> str:
    line = html.escape(" ".join(foreign_text.shown(text).split()), quote=False)
    return MARKUP.sub(r"\\\1", line)


def _rendered(block: Block, level: int) -> str:
    match block:
        case Part():
            return f"{'#' * level} {block.title}\n\n{as_markdown(block.blocks, level + 1)}"
        case Heading():
            return f"{'#' * level} {block.text}\n"
        case Prose():
            return f"{_markdown_words(block.text)}\n"
        case Bullets():
            return "".join(f"- {_markdown_words(item)}\n" for item in block.items)
        case Table():
            rows = [[line.name, *line.cells] for group in block.groups for line in group.lines]
            cells = [[_markdown_words(cell.text) for cell in row] for row in rows]
            lines = [f"| {' | '.join(row)} |" for row in [list(block.headings), *cells]]
            lines.insert(1, "|---" * len(block.headings) + "|")
            return "".join(f"{line}\n" for line in lines)
    raise TypeError(f"{type(block).__name__} has no place in Markdown")


def _markdown_words(words: Words) -> str:
    if not isinstance(words, str):
        raise TypeError(f"{type(words).__name__} has no place in Markdown")
    return words
