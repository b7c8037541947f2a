"""`fedsim reproduce`: the tables and figures of the sources, made again."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE
from rich.table import Table

from adversaries.errors import InputError
from fedsim.cli.options import AsJson
from fedsim.cli.terminal import Terminal, print_json
from fedsim.reproduction.findings.item import DATA, Scale

if TYPE_CHECKING:  # torch and matplotlib, which take a second
    from fedsim.reproduction.findings.item import Item, Means


def reproduce(
    source: Annotated[
        str | None, typer.Argument(metavar="[SOURCE]", help="Whose items; all without it.")
    ] = None,
    items: Annotated[
        list[str] | None, typer.Argument(metavar="[ITEM]...", help="Which; all without it.")
    ] = None,
    data_root: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder with mnist/, adult/ and so on in it."),
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
    from fedsim.reproduction import page, session  # noqa: PLC0415
    from fedsim.reproduction.findings.item import Means  # noqa: PLC0415
    from fedsim.reproduction.registry import ITEMS  # noqa: PLC0415

    chosen = _chosen(source, items or [])
    console = Terminal(stderr=True, quiet=json_)
    root = None if data_root is None else data_root.expanduser().absolute()
    if root is not None and not root.is_dir():
        raise InputError(f"--data-root: there is no folder '{root}'")
    means = Means(
        scale=scale,
        folder=out.expanduser().absolute(),
        data_root=root,
        download=download,
        say=lambda what: console.print(f"  {what}", highlight=False),
    )
    if list_:
        Terminal().print(_listing(chosen, means))
        return
    there = [item for item in chosen if not item.missing(means)]
    skipped = {
        item.title: "; ".join(DATA[name] for name in item.missing(means))
        for item in chosen
        if item not in there
    }
    _announce(console, there, skipped, means)
    for _ in session.make(there, means):
        pass
    # The page has all that is kept, whatever was asked for this time.
    made = [kept for item in ITEMS if (kept := session.read(item, means)) is not None]
    written = page.write(means.folder, made, skipped)
    if markdown is not None:
        page.write_markdown(markdown, made)
    if json_:
        import json  # noqa: PLC0415

        print_json(json.loads((means.folder / "reproduction.json").read_text(encoding="utf-8")))
    console.print(page.counted(made), highlight=False)
    console.print(f"Page: {written}", soft_wrap=True, highlight=False)


def _chosen(source: str | None, names: list[str]) -> "list[Item]":
    """Return the items that were asked for, in their order. Raises InputError."""
    from fedsim.reproduction.registry import ITEMS, SOURCES  # noqa: PLC0415

    if source is None:
        return list(ITEMS)
    if source not in SOURCES:
        raise InputError(f"no source is called '{source}'; there are {', '.join(SOURCES)}")
    of_source = {item.name: item for item in ITEMS if item.source == source}
    if unknown := [name for name in names if name not in of_source]:
        raise InputError(f"{source} has no item '{unknown[0]}'; there are {', '.join(of_source)}")
    return [item for name, item in of_source.items() if not names or name in names]


def _listing(items: "list[Item]", means: "Means") -> Table:
    table = Table("item", "what", "minutes", "data", box=SIMPLE)
    table.columns[0].no_wrap = True
    for item in items:
        missing = item.missing(means)
        data = [f"{name}, missing" if name in missing else name for name in item.needs]
        row = f"{item.source} {item.name}", item.title, f"{item.minutes:g}", "; ".join(data)
        table.add_row(*row)
    return table


def _announce(
    console: Terminal, items: "list[Item]", skipped: dict[str, str], means: "Means"
) -> None:
    """Say what it will cost, and what is not made."""
    from fedsim.reproduction import session  # noqa: PLC0415

    for title, why in skipped.items():
        console.print(f"Skipped: {title}: {why}", highlight=False)
    left = [item for item in items if session.read(item, means) is None]
    cost = "seconds each" if means.smoke else f"about {sum(i.minutes for i in left):.0f} minutes"
    console.print(
        f"{len(left)} of {len(items)} items to make, {cost} on two cores; kept in {means.folder}",
        highlight=False,
        soft_wrap=True,
    )
