"""`fedsim reproduce`: the tables and figures of the sources, made again."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE
from rich.table import Table

from adversaries.errors import InputError
from fedsim.cli.options import DATA_ROOT, AsJson
from fedsim.cli.terminal import Terminal, print_json
from fedsim.common import report_directory
from fedsim.studies.reproduction.findings import DATA, Scale

if TYPE_CHECKING:  # torch and matplotlib, which take a second
    from fedsim.studies.reproduction.findings import Item, Means
    from fedsim.studies.reproduction.session import Made


def reproduce(
    source: Annotated[
        str | None, typer.Argument(metavar="[SOURCE]", help="Whose items; all without it.")
    ] = None,
    items: Annotated[
        list[str] | None, typer.Argument(metavar="[ITEM]...", help="Which; all without it.")
    ] = None,
    data_root: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help=f"{DATA_ROOT}: mnist/, adult/ and so on in a folder."),
    ] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Download into DIR what may be (MNIST).")
    ] = False,
    scale: Annotated[
        Scale, typer.Option(help="full: as published; smoke: seconds, to see that it works.")
    ] = Scale.FULL,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where items, runs and the page are kept.")
    ] = Path("fedsim-runs/reproduction"),
    markdown: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the tables there too, between its marks if any."),
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="Show items, what they cost and need; make none.")
    ] = False,
    json_: AsJson = False,
) -> None:
    """Make the tables and figures of the papers behind fedsim again, and hold them against those.

    Leaves one page with each item's picture or table, the published or recorded value, ours with
    its interval, the closed form where there is one, and whether they agree. What was made is kept:
    a command that was interrupted, or a later one, goes on from there, and the page has all of it.

    Examples:

    fedsim reproduce --list

    fedsim reproduce bernau figure-3 table-2b

    fedsim reproduce bernau --data-root DIR
    """
    from fedsim.studies.reproduction import page, session  # noqa: PLC0415
    from fedsim.studies.reproduction.findings import Means  # noqa: PLC0415

    chosen = _chosen(source, items or [])
    console = Terminal(stderr=True, quiet=json_)
    root = _checked(data_root, markdown)
    means = Means(
        scale=scale,
        folder=out.expanduser().absolute(),
        data_root=root,
        download=download,
        say=lambda what: console.print(f"  {what}", highlight=False),
    )
    if list_:
        _list(chosen, means, json_)
        return
    why_not = {item.title: _why_not(item, means, named=bool(items)) for item in chosen}
    skipped = {title: why for title, why in why_not.items() if why}
    there = [item for item in chosen if item.title not in skipped]
    report_directory.create(means.folder)
    _announce(console, there, skipped, means)
    made = _publish(means, skipped)
    for _ in session.make(there, means):
        made = _publish(means, skipped)
    if markdown is not None:
        page.write_markdown(markdown, made)
    if json_:
        import json  # noqa: PLC0415

        print_json(json.loads((means.folder / page.JSON).read_text(encoding="utf-8")))
    console.print(page.counted(made), highlight=False)
    console.print(f"Page: {means.folder / page.PAGE}", soft_wrap=True, highlight=False)


def _checked(data_root: Path | None, markdown: Path | None) -> Path | None:
    """Return where the data are. Raises InputError for a folder that is not there."""
    if markdown is not None and not markdown.absolute().parent.is_dir():
        raise InputError(f"--markdown: there is no folder '{markdown.parent}'")
    root = None if data_root is None else data_root.expanduser().absolute()
    if root is not None and not root.is_dir():
        raise InputError(f"--data-root: there is no folder '{root}'")
    return root


def _list(chosen: Sequence["Item"], means: "Means", as_json: bool) -> None:
    """Print what there is to make."""
    if as_json:
        print_json({"items": [_listed(item, means) for item in chosen]})
        return
    for key in dict.fromkeys(item.source for item in chosen):
        Terminal().print(_listing(key, [item for item in chosen if item.source == key], means))


def _publish(means: "Means", skipped: dict[str, str]) -> "list[Made]":
    """Write the page with all that is kept, whatever was asked for this time; return that."""
    from fedsim.studies.reproduction import page, session  # noqa: PLC0415
    from fedsim.studies.reproduction.registry import ITEMS  # noqa: PLC0415

    made = [kept for item in ITEMS if (kept := session.read(item, means)) is not None]
    page.write(means.folder, made, skipped)
    return made


def _chosen(source: str | None, names: list[str]) -> "list[Item]":
    """Return the items that were asked for, in their order. Raises InputError."""
    from fedsim.studies.reproduction.registry import ITEMS, SOURCES  # noqa: PLC0415

    if source is None:
        return list(ITEMS)
    if source not in SOURCES:
        raise InputError(f"no source is called '{source}'; there are {', '.join(SOURCES)}")
    of_source = {item.name: item for item in ITEMS if item.source == source}
    if unknown := [name for name in names if name not in of_source]:
        raise InputError(f"{source} has no item '{unknown[0]}'; there are {', '.join(of_source)}")
    return [item for name, item in of_source.items() if not names or name in names]


def _why_not(item: "Item", means: "Means", named: bool) -> str:
    """Return why an item is not made, and how to have it; "" for one that is."""
    from fedsim.studies.reproduction import session  # noqa: PLC0415

    if missing := item.missing(means):
        return "; ".join(DATA[name] for name in missing)
    if item.too_long(means) and not named and session.read(item, means) is None:
        return f"takes about {item.minutes / 60:.0f} hours: name it to make it"
    return ""


def _listed(item: "Item", means: "Means") -> dict[str, object]:
    """Return what --list says of an item, for --json."""
    return {
        "source": item.source,
        "item": item.name,
        "what": item.title,
        "minutes": item.minutes,
        "only_when_named": item.too_long(means),
        "needs": list(item.needs),
        "missing": list(item.missing(means)),
    }


def _listing(source: str, items: "list[Item]", means: "Means") -> Table:
    table = Table("item", "what", "minutes", "data", box=SIMPLE, title=f"fedsim reproduce {source}")
    table.columns[0].no_wrap = True
    for item in items:
        missing = item.missing(means)
        data = [f"{name}, missing" if name in missing else name for name in item.needs]
        only = ", when named" if item.too_long(means) else ""
        table.add_row(item.name, item.title, f"{item.minutes:g}{only}", "; ".join(data))
    return table


def _announce(
    console: Terminal, items: "list[Item]", skipped: dict[str, str], means: "Means"
) -> None:
    """Say what it will cost, and what is not made."""
    from fedsim.studies.reproduction import session  # noqa: PLC0415

    for title, why in skipped.items():
        console.print(f"Skipped: {title}: {why}", highlight=False)
    left = [item for item in items if session.read(item, means) is None]
    cost = "seconds each" if means.smoke else f"about {sum(i.minutes for i in left):.0f} minutes"
    console.print(
        f"{len(left)} of {len(items)} items to make, {cost} on two cores; kept in {means.folder}",
        highlight=False,
        soft_wrap=True,
    )
