"""The reproduced items on one page, and as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from fedsim.common import private_files
from fedsim.report.document import blocks as doc
from fedsim.report.document import html
from fedsim.report.document.wording import DASH, number, span
from papers.findings import MadeItem, Number, agreement, table_agreement
from papers.registry import SOURCES

HEADINGS = ("number", "the source", "ours (95 %)", "theory", "agreement")
PAGE, JSON = "reproduction.html", "reproduction.json"

SMOKE = (
    "A smoke run: all items use scikit-learn's digits and few trials. It shows that everything "
    "works. Do not compare its numbers with the sources."
)

CHANCE = "Each interval is at 95 %. Of many numbers, a few depart by chance."


def counted(made: Sequence[MadeItem]) -> str:
    kinds = [agreement(one).kind for item in made for one in item.finding.numbers]
    return (
        f"{len(made)} items with {len(kinds)} numbers: {kinds.count('agrees')} agree with the "
        f"source, {kinds.count('departs')} depart from it, and for {kinds.count('alone')} the "
        "source has no value."
    )


def write_reproduction(
    directory: Path, made: Sequence[MadeItem], skipped: Mapping[str, str]
) -> None:
    """Write the page and its JSON, with the reason and remedy of each skipped item by its title."""
    items = []
    for item in made:
        encoded: dict[str, Any] = TypeAdapter(MadeItem).dump_python(item, mode="json")
        for value, one in zip(encoded["finding"]["numbers"], item.finding.numbers, strict=True):
            compared = agreement(one)
            value |= {"agreement": compared.kind, "statement": compared.text}
        items.append(encoded)
    document = {"items": items, "skipped": dict(skipped)}
    text = TypeAdapter(dict[str, Any]).dump_json(document, indent=1)
    private_files.write_private(directory / JSON, text)
    private_files.write_private(directory / PAGE, render(made, skipped).encode())


def rows(item: MadeItem) -> list[tuple[str, ...]]:
    """Return a row of text for each number of an item."""
    return [(one.name, *compared_cells(one), agreement(one).text) for one in item.finding.numbers]


def compared_cells(one: Number) -> tuple[str, str, str]:
    """Return the source's values, ours with its interval, and theory's, as text."""
    source = ", ".join(number(each.value) for each in one.references) or DASH
    ours = number(one.ours) + (f" ({span(one.interval, number)})" if one.interval else "")
    return source, ours, number(one.closed_form)


def render(made: Sequence[MadeItem], skipped: Mapping[str, str]) -> str:
    """Return the page, which needs no other file, script or network."""
    title = "The sources, made again"
    return html.render(
        doc.Document(
            title, "Reproduction", title, doc.FirstScreen(verdict(made)), blocks(made, skipped)
        )
    )


def verdict(made: Sequence[MadeItem]) -> list[str]:
    """Return how many numbers agree with their sources, and a caution."""
    return [counted(made), SMOKE if any(item.scale == "smoke" for item in made) else CHANCE]


def blocks(made: Sequence[MadeItem], skipped: Mapping[str, str]) -> list[doc.Block]:
    """Return the items that were not made, then the others by source."""
    parts: list[doc.Block] = []
    if skipped:
        table = doc.tabulated(["item", "reason, and remedy"], skipped.items())
        parts.append(doc.Part("Not made", [table]))
    for key, items in by_source(made):
        parts.append(doc.Part(SOURCES[key], [block for item in items for block in _section(item)]))
    return parts


def by_source(made: Sequence[MadeItem]) -> list[tuple[str, list[MadeItem]]]:
    """Return the items of each source, by its key."""
    keys = dict.fromkeys(item.source for item in made)
    return [(key, [item for item in made if item.source == key]) for key in keys]


def _section(item: MadeItem) -> Iterator[doc.Block]:
    place = f"{item.source}-{item.name}"
    yield doc.Heading(item.title, place)
    yield doc.Prose(item.finding.conclusion)
    for one in item.finding.pictures:
        yield doc.Picture(f"{item.source}-{one.name}", one.svg, "", one.caption)
    if item.finding.numbers:
        yield doc.tabulated(HEADINGS, rows(item))
        if sentence := table_agreement(item.finding.numbers):
            yield doc.Prose(sentence)
    for grid in item.finding.grids:
        yield doc.Prose(grid.title)
        yield doc.tabulated(grid.headings, grid.rows)
    made = f", {item.seconds:.0f} s, fedsim {item.fedsim}."
    yield doc.Prose((doc.Code(item.command), made), small=True)
