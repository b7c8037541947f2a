"""`fedsim reproduce`: the tables and figures of the papers, made again."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE
from rich.table import Table

from fedsim.cli.elsewhere import ItemsElsewhere
from fedsim.cli.options import DATA_ROOT, AsJson
from fedsim.cli.terminal import Terminal, print_json
from papers.findings import Scale

if TYPE_CHECKING:  # torch and matplotlib, which take a second
    from papers.findings import Item, Means


def reproduce(
    *,
    source: Annotated[
        str | None,
        typer.Argument(metavar="[SOURCE]", help="Source of the items to reproduce. Default: all."),
    ] = None,
    items: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ITEM]...", help="Items to reproduce. Default: all."),
    ] = None,
    data_root: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help=f"{DATA_ROOT}, with mnist/, adult/ and so on."),
    ] = None,
    download: Annotated[
        bool,
        typer.Option(
            "--download", help="Download missing data into DIR where the licence allows it (MNIST)."
        ),
    ] = False,
    scale: Annotated[
        Scale,
        typer.Option(
            help="Size of the experiments. full: as published; smoke: a few seconds each, to "
            "see that they work."
        ),
    ] = Scale.FULL,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory of the items, runs and page.")
    ] = Path("fedsim-runs/reproduction"),
    markdown: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Markdown file for the notes. A page with marks gets a table."
        ),
    ] = None,
    list_: Annotated[
        bool,
        typer.Option(
            "--list", help="List the items with their cost and the data they need, and exit."
        ),
    ] = False,
    elsewhere: ItemsElsewhere,
    json_: AsJson = False,
) -> None:
    """Reproduce the tables and figures of the papers behind fedsim, and compare the values.

    Writes one page. For each item it shows the figure or table, the published or recorded value,
    and our value with its interval. It also shows the closed form, if there is one, and whether
    the values agree. A later command keeps these results, and its page shows all of them.

    Examples:

    fedsim reproduce --list

    fedsim reproduce bernau figure-3 table-2b

    fedsim reproduce bernau --data-root DIR
    """
    from papers import making, notes, page  # noqa: PLC0415
    from papers.findings import Means  # noqa: PLC0415

    chosen = making.chosen(source, items or [])
    placed = elsewhere.named()
    console = Terminal(stderr=True, quiet=json_)
    if markdown is not None:
        making.existing_folder(markdown.absolute().parent, "--markdown")
    means = Means(
        scale=scale,
        folder=out.expanduser().absolute(),
        data_root=making.existing_folder(data_root, "--data-root"),
        download=download,
        say=lambda what: console.print(f"  {what}", highlight=False),
    )
    if list_:
        _list(chosen, means, json_)
        return
    skipped = making.skipped(chosen, means, named=bool(items))
    possible = [item for item in chosen if item.title not in skipped]
    _announce(console, possible, skipped, means)
    made = list(making.publish(possible, means, skipped, placed))[-1]
    if markdown is not None:
        notes.write_notes(markdown, made)
    if json_:
        import json  # noqa: PLC0415

        print_json(json.loads((means.folder / page.JSON).read_text(encoding="utf-8")))
    console.print(page.counted(made), highlight=False)
    console.print(f"Page: {means.folder / page.PAGE}", soft_wrap=True, highlight=False)


def _list(chosen: Sequence["Item"], means: "Means", as_json: bool) -> None:
    rows = [
        {
            "source": item.source,
            "item": item.name,
            "what": item.title,
            "minutes": item.minutes,
            "only_when_named": item.too_long(means),
            "needs": list(item.needs),
            "missing": list(item.missing(means)),
        }
        for item in chosen
    ]
    if as_json:
        print_json({"items": rows})
        return
    tables: dict[str, Table] = {}
    for item in chosen:
        title = f"fedsim reproduce {item.source}"
        if title not in tables:
            tables[title] = Table("item", "what", "minutes", "data", box=SIMPLE, title=title)
            tables[title].columns[0].no_wrap = True
        missing = item.missing(means)
        data = [f"{name}, missing" if name in missing else name for name in item.needs]
        only = ", when named" if item.too_long(means) else ""
        tables[title].add_row(item.name, item.title, f"{item.minutes:g}{only}", "; ".join(data))
    for table in tables.values():
        Terminal().print(table)


def _announce(
    console: Terminal, items: "list[Item]", skipped: dict[str, str], means: "Means"
) -> None:
    """Print the cost of the items, and which items are skipped."""
    from papers import making  # noqa: PLC0415

    for title, why in skipped.items():
        console.print(f"Skipped: {title}: {why}", highlight=False)
    left = [item for item in items if making.read_made(item, means) is None]
    cost = "seconds each" if means.smoke else f"about {sum(i.minutes for i in left):.0f} minutes"
    console.print(
        f"Items to make: {len(left)} of {len(items)}, {cost} on two cores. Results are kept in "
        f"{means.folder}",
        highlight=False,
        soft_wrap=True,
    )
