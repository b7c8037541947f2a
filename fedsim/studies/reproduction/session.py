"""The loop that makes items one after the other, and keeps them for later calls."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

import fedsim
from fedsim.common import private_files, reading
from fedsim.common.device import one_thread
from fedsim.studies.reproduction.findings import Item, Means, Reproduced

FOLDER = "items"
"""Folder of the items, in the directory."""


@dataclass(frozen=True)
class Made:
    """An item that was made.

    Attributes:
        created: time, in UTC.
        seconds: duration, without runs that existed already.
    """

    source: str
    name: str
    title: str
    scale: str
    fedsim: str
    created: str
    seconds: float
    command: str
    finding: Reproduced


@cache
def adapter() -> TypeAdapter[Made]:
    """Return the adapter that writes and reads an item as JSON."""
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
            numbers = tuple(replace(one, references=()) for one in finding.numbers)
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
        private_files.write(_place(item, means), adapter().dump_json(made, indent=1))
        yield made


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
