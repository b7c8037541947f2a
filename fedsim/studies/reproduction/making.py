"""The choice of the items to make, and the page with all items so far."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from adversaries.errors import InputError
from fedsim.common import report_directory
from fedsim.studies.reproduction import page, session
from fedsim.studies.reproduction.findings import DATA, Item, Means
from fedsim.studies.reproduction.registry import ITEMS, SOURCES
from fedsim.studies.reproduction.session import Made


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
        elif item.too_long(means) and not named and session.read(item, means) is None:
            hours = f"takes about {item.minutes / 60:.0f} hours"
            reasons[item.title] = f"{hours}: name it to make it"
    return reasons


def folder(path: Path | None, option: str) -> Path | None:
    """Return the absolute path of an option's folder. Raises InputError if it does not exist."""
    absolute = None if path is None else path.expanduser().absolute()
    if absolute is not None and not absolute.is_dir():
        raise InputError(f"{option}: the folder '{absolute}' does not exist")
    return absolute


def make(items: Sequence[Item], means: Means, skip: Mapping[str, str]) -> Iterator[list[Made]]:
    """Make items, and yield all items so far after each write of the page, the first included."""
    report_directory.create(means.folder)
    yield _published(means, skip)
    for _ in session.make([item for item in items if item.title not in skip], means):
        yield _published(means, skip)


def _published(means: Means, skip: Mapping[str, str]) -> list[Made]:
    made = [kept for item in ITEMS if (kept := session.read(item, means)) is not None]
    page.write(means.folder, made, skip)
    return made
