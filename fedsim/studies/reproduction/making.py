"""Which items of the sources are made, and the page that holds all that were kept."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from adversaries.errors import InputError
from fedsim.common import report_directory
from fedsim.studies.reproduction import page, session
from fedsim.studies.reproduction.findings import DATA, Item, Means
from fedsim.studies.reproduction.registry import ITEMS, SOURCES
from fedsim.studies.reproduction.session import Made


def chosen(source: str | None, names: Sequence[str]) -> list[Item]:
    """Return the items of a source, in their order.

    Args:
        source: a key of `SOURCES`; None for all.
        names: of items; all without any.

    Raises:
        InputError: no such source or item.
    """
    if source is None:
        return list(ITEMS)
    if source not in SOURCES:
        raise InputError(f"no source is called '{source}'; there are {', '.join(SOURCES)}")
    of_source = {item.name: item for item in ITEMS if item.source == source}
    if unknown := [name for name in names if name not in of_source]:
        raise InputError(f"{source} has no item '{unknown[0]}'; there are {', '.join(of_source)}")
    return [item for name, item in of_source.items() if not names or name in names]


def skipped(items: Sequence[Item], means: Means, named: bool) -> dict[str, str]:
    """Return the titles of items that are not made, each with the reason and how to have it.

    Args:
        named: whether the items were asked for by name: then they may take hours.
    """
    reasons = {item.title: _why_not(item, means, named) for item in items}
    return {title: why for title, why in reasons.items() if why}


def folder(path: Path | None, option: str) -> Path | None:
    """Return the absolute path of a folder.

    Args:
        option: that names it, for the error.

    Raises:
        InputError: there is no such folder.
    """
    found = None if path is None else path.expanduser().absolute()
    if found is not None and not found.is_dir():
        raise InputError(f"{option}: there is no folder '{found}'")
    return found


def make(items: Sequence[Item], means: Means, skip: Mapping[str, str]) -> Iterator[list[Made]]:
    """Make items, and write the page with all that is kept before the first and after each.

    Args:
        skip: as of `skipped`, for the page.

    Yields:
        Everything that is kept, each time the page was written.
    """
    report_directory.create(means.folder)
    yield _published(means, skip)
    for _ in session.make([item for item in items if item.title not in skip], means):
        yield _published(means, skip)


def _published(means: Means, skip: Mapping[str, str]) -> list[Made]:
    made = [kept for item in ITEMS if (kept := session.read(item, means)) is not None]
    page.write(means.folder, made, skip)
    return made


def _why_not(item: Item, means: Means, named: bool) -> str:
    """Return why an item is not made, and how to have it; "" for one that is."""
    if missing := item.missing(means):
        return "; ".join(DATA[name] for name in missing)
    if item.too_long(means) and not named and session.read(item, means) is None:
        return f"takes about {item.minutes / 60:.0f} hours: name it to make it"
    return ""
