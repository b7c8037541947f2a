"""The making of items: each is kept as JSON, beside its pictures."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

import fedsim
from adversaries.errors import InputError
from fedsim.common import private_files, reading
from fedsim.common.device import one_thread
from papers.findings import DATA, Item, MadeItem, Means
from papers.registry import ITEMS, SOURCES

ITEM_FOLDER = "items"


@cache
def adapter() -> TypeAdapter[MadeItem]:
    return TypeAdapter(MadeItem)


def make(items: Sequence[Item], means: Means) -> Iterator[MadeItem]:
    """Yield the items in their order; a kept item is not made again."""
    private_files.make_directory(means.folder / ITEM_FOLDER)
    for item in items:
        if (kept := read_made(item, means)) is not None:
            yield kept
            continue
        means.say(item.title)
        begun = time.perf_counter()
        with one_thread():  # the same bits on machines of any number of cores
            finding = item.make(means)
        if item.needs and means.smoke:
            # The source's numbers are for other data and more trials.
            numbers = [replace(one, references=()) for one in finding.numbers]
            finding = replace(finding, numbers=numbers)
        made = MadeItem(
            source=item.source,
            name=item.name,
            title=item.title,
            scale=means.scale.value,
            fedsim=fedsim.__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=time.perf_counter() - begun,
            command=command(item, means),
            finding=finding,
        )
        place, content = _place(item, means), adapter().dump_json(made, indent=1)
        for picture in finding.pictures:
            drawn = place.with_name(f"{place.stem}-{picture.name}.svg")
            private_files.write_private(drawn, picture.svg.encode())
        private_files.write_private(place, content)
        yield adapter().validate_json(content)  # what a later call reads


def read_made(item: Item, means: Means) -> MadeItem | None:
    """Return a kept item; None if there is none of this version and scale."""
    place = _place(item, means)
    if not place.is_file():
        return None
    try:
        made = adapter().validate_json(place.read_bytes())
    except (*reading.DAMAGE, ValidationError):
        return None  # it is made again
    return made if made.fedsim == fedsim.__version__ else None


def command(item: Item, means: Means) -> str:
    data = " --data-root DIR" if item.needs and not means.smoke else ""
    return f"python papers {item.source}/{item.name}{' --smoke' * means.smoke}{data}"


def _place(item: Item, means: Means) -> Path:
    return means.folder / ITEM_FOLDER / f"{means.scale.value}-{item.source}-{item.name}.json"


def chosen(names: Sequence[str]) -> list[Item]:
    """Return the items of names "SOURCE" or "SOURCE/ITEM". Raises InputError for another name."""
    items: list[Item] = []
    for name in names:
        source, _, wanted = name.partition("/")
        of_source = {item.name: item for item in ITEMS if item.source == source}
        if not of_source:
            raise InputError(f"unknown source '{source}'; give one of {', '.join(SOURCES)}")
        if wanted and wanted not in of_source:
            raise InputError(f"{source} has no item '{wanted}'; its items: {', '.join(of_source)}")
        items += [item for each, item in of_source.items() if wanted in ("", each)]
    return items


def skipped(items: Sequence[Item], means: Means, named: Sequence[str]) -> dict[str, str]:
    """Return the titles of items that are not made, each with the reason and the remedy.

    named: names "SOURCE/ITEM" of items that are made even if they take hours.
    """
    reasons = {}
    for item in items:
        if missing := item.missing(means):
            reasons[item.title] = "; ".join(DATA[name] for name in missing)
        elif (
            item.too_long(means)
            and f"{item.source}/{item.name}" not in named
            and read_made(item, means) is None
        ):
            hours = f"takes about {item.minutes / 60:.0f} hours"
            reasons[item.title] = f"{hours}: name it to make it"
    return reasons
