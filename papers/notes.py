"""The reproduced items as pages of the documentation: one pooled table, and a note per source."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fedsim.reports.document.blocks import Block, Heading, Part, Prose, tabulated
from fedsim.reports.document.terminal import as_markdown
from fedsim.reports.document.wording import DASH, number, span
from papers.findings import (
    MadeItem,
    Number,
    Reproduced,
    agreement,
    table_agreement,
)
from papers.registry import SOURCES

POOLED = ("item", "number", "the source", "ours (95 %)", "theory", "agreement")

CELLS = (
    "A cell has our value with its 95 % interval, then the published value, then theory's. A value "
    "departs if the difference is not explained by chance (95 %) and the printed digits."
)

SPREAD = 1.4
"""Most cells of a grid for each number; a sparser grid becomes a list."""


def write_notes(folder: Path, made: Sequence[MadeItem], above: str = "") -> None:
    """Write a note SOURCE.md for each source, with some Markdown above its items."""
    folder.mkdir(exist_ok=True)
    for source, items in by_source(made):
        (folder / f"{source}.md").write_text(note(source, items, above), encoding="utf-8")


def by_source(made: Sequence[MadeItem]) -> list[tuple[str, list[MadeItem]]]:
    """Return the items of each source, by its key."""
    keys = dict.fromkeys(item.source for item in made)
    return [(key, [item for item in made if item.source == key]) for key in keys]


def counted(made: Sequence[MadeItem]) -> str:
    """Return how many numbers agree with their sources."""
    kinds = [agreement(one).kind for item in made for one in item.finding.numbers]
    return (
        f"{len(made)} items with {len(kinds)} numbers: {kinds.count('agrees')} agree with the "
        f"source, {kinds.count('departs')} depart from it, and for {kinds.count('alone')} the "
        "source has no value."
    )


def compared_cells(one: Number) -> tuple[str, str, str]:
    """Return the source's values, ours with its interval, and theory's, as text."""
    source = ", ".join(number(each.value) for each in one.references) or DASH
    ours = number(one.ours) + (f" ({span(one.interval, number)})" if one.interval else "")
    return source, ours, number(one.closed_form)


def pooled(made: Sequence[MadeItem], folder: str) -> str:
    """Return a table with one number of each item, as Markdown, with links to the folder of notes.

    It is the first number that departs from the source, else the first with a value by theory, else
    the first.
    """
    table = tabulated(POOLED, [row for item in made if (row := _pooled_row(item, folder))])
    return as_markdown([Prose(counted(made)), table])


def _pooled_row(item: MadeItem, folder: str) -> tuple[str, ...]:
    """Return the row of an item; () if its source has no number."""
    compared = [one for one in item.finding.numbers if one.references]
    if not compared:
        return ()
    apart = [one for one in compared if agreement(one).kind == "departs"]
    one = [*apart, *(each for each in compared if each.closed_form is not None), *compared][0]
    count, kind = (len(apart), "depart") if apart else (len(compared), "agree")
    # Code hosts and the site make a heading's anchor like this.
    anchor = re.sub(r"[^\w -]", "", item.title.lower()).replace(" ", "-")
    return (
        f"[{item.title}]({folder}/{item.source}.md#{anchor})",
        _escaped(one.name),
        *compared_cells(one),
        f"{count} of {len(compared)} {kind}",
    )


def note(source: str, items: Sequence[MadeItem], above: str = "") -> str:
    """Return all items of a source with their numbers, as Markdown, with some Markdown above."""
    blocks = [Prose(counted(items)), Prose(CELLS)]
    body = [*blocks, *(block for item in items for block in _item(item))]
    title, rest = as_markdown([Part(SOURCES[source], body)]).split("\n\n", 1)
    return f"{title}\n\n{above}{rest}"


def _item(item: MadeItem) -> Iterator[Block]:
    yield Heading(item.title)
    yield Prose(f"    {item.command}")
    yield Prose(item.finding.conclusion)
    yield from _numbers(item.finding)
    for grid in item.finding.grids:
        yield Prose(grid.title)
        yield tabulated(grid.headings, grid.rows)


def _numbers(finding: Reproduced) -> Iterator[Block]:
    cells = {one.name: _cell(one) for one in finding.numbers}
    if not cells:
        return
    columns, lines = _grid(list(cells))
    if columns:
        rows = [(line, *(cells.get(each, "") for each in names)) for line, names in lines.items()]
    else:
        columns, rows = ["ours, the source, theory"], list(cells.items())
    escaped = [tuple(map(_escaped, row)) for row in rows]
    yield tabulated(["number", *map(_escaped, columns)], escaped)
    if sentence := table_agreement(finding.numbers):
        yield Prose(sentence)
    for why in dict.fromkeys(one.departs for one in finding.numbers if _departs(one)):
        yield Prose(f"Departs because {why}." if why else "Why a value departs is not known.")


def _departs(one: Number) -> bool:
    return agreement(one).kind == "departs"


def _grid(names: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Return columns, and the names of each line, if the names form a grid; else empty ones."""
    for parts in (
        [name.partition(": ") for name in names],
        [name.partition(", ") for name in names],
        [name.rpartition(", ") for name in names],
    ):
        first, second = _different(part[0] for part in parts), _different(part[2] for part in parts)
        full = len(first) * len(second) <= SPREAD * len(names)
        if all(part[1] for part in parts) and min(len(first), len(second)) > 1 and full:
            between = parts[0][1]
            if len(second) <= len(first):
                return second, {a: [f"{a}{between}{b}" for b in second] for a in first}
            return first, {b: [f"{a}{between}{b}" for a in first] for b in second}
    return [], {}


def _different(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _cell(one: Number) -> str:
    """Return a number with the source's value and theory's, in words."""
    source, ours, theory = compared_cells(one)
    parts = [ours]
    if one.references:
        parts.append(f"{source} published, {'departs' if _departs(one) else 'agrees'}")
    if one.closed_form is not None:
        outside = ", outside" * ("outside of our interval" in agreement(one).text)
        parts.append(f"theory {theory}{outside}")
    return "; ".join(parts)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
