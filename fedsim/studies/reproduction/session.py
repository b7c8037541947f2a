"""The choice of items, and the loop that makes and keeps them."""

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
from fedsim.studies.reproduction.findings import DATA, Item, Made, Means
from fedsim.studies.reproduction.registry import ITEMS, SOURCES

FOLDER = "items"


@cache
def adapter() -> TypeAdapter[Made]:
    return TypeAdapter(Made)


def make(items: Sequence[Item], means: Means) -> Iterator[Made]:
    """Yield the items in their order; a kept item is not made again."""
    private_files.make_directory(means.folder / FOLDER)
    for item in items:
        if (kept := read(item, means)) is not None:
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
        made = Made(
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
        content = adapter().dump_json(made, indent=1)
        private_files.write(_place(item, means), content)
        yield adapter().validate_json(content)  # what a later call reads


def read(item: Item, means: Means) -> Made | None:
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
    return f"fedsim reproduce {item.source} {item.name} --scale {means.scale.value}{data}"


def _place(item: Item, means: Means) -> Path:
    return means.folder / FOLDER / f"{means.scale.value}-{item.source}-{item.name}.json"


def chosen(source: str | None, names: Sequence[str]) -> list[Item]:
    """Return the named items of a source, or all. Raises InputError for an unknown name."""
    if source is None:
        return list(ITEMS)
    if source not in SOURCES:
        raise InputError(f"unknown source '{source}'; give one of {', '.join(SOURCES)}")
    of_source = {item.name: item for item in ITEMS if item.source == source}
    if unknown := [name for name in names if name not in of_source]:
        raise InputError(f"{source} has no item '{unknown[0]}'; its items: {', '.join(of_source)}")
    return [item for name, item in of_source.items() if not names or name in names]


def skipped(items: Sequence[Item], means: Means, named: bool) -> dict[str, str]:
    """Return the titles of items that are not made, each with the reason and the remedy."""
    reasons = {}
    for item in items:
        if missing := item.missing(means):
            reasons[item.title] = "; ".join(DATA[name] for name in missing)
        elif item.too_long(means) and not named and read(item, means) is None:
            hours = f"takes about {item.minutes / 60:.0f} hours"
            reasons[item.title] = f"{hours}: name it to make it"
    return reasons


def folder(path: Path | None, option: str) -> Path | None:
    """Return the absolute path of an option's folder. Raises InputError if it does not exist."""
    absolute = None if path is None else path.expanduser().absolute()
    if absolute is not None and not absolute.is_dir():
        raise InputError(f"{option}: the folder '{absolute}' does not exist")
    return absolute
