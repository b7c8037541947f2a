"""What the sources and the documentation state, made again.

python papers [NAME ...] [--smoke] [--data-root DIR] [--out DIR] [--write docs]

A NAME is a study, which prints its tables; a source, whose tables and figures are made again and
compared with the published ones; or one item of a source, such as bernau/figure-3. Items are kept
in --out with their pictures, so that an interrupted command continues. --record writes the numbers
of the page Evidence into papers/results/, and the page.
"""

import argparse
import importlib
import logging
import pkgutil
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console

ROOT = Path(__file__).parents[1]
STUDY_FOLDER = ROOT / "papers" / "studies"
# Tables are printed and written as those of the benchmarks.
sys.path = [str(ROOT), *sys.path[1:], str(STUDY_FOLDER), str(ROOT / "tests" / "benchmarks")]

from tables import Table, machine, show  # noqa: E402

from adversaries.errors import InputError  # noqa: E402
from papers import evidence, making  # noqa: E402
from papers.findings import (  # noqa: E402
    Item,
    MadeItem,
    Means,
    Scale,
    agreement,
    compared_cells,
    counted,
    table_agreement,
)
from papers.registry import SOURCES  # noqa: E402

STUDIES = sorted({module.name for module in pkgutil.iter_modules([str(STUDY_FOLDER)])})
"""Modules of studies: `measure(smoke, data_root)` yields the tables of one."""


def main() -> None:
    """Run the chosen studies, make the chosen items, and print what they found."""
    parser = argparse.ArgumentParser(prog="python papers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    known = f"studies: {', '.join(STUDIES)}; sources: {', '.join(SOURCES)}; default: all"
    parser.add_argument("names", nargs="*", metavar="NAME", help=known)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: does everything work?")
    parser.add_argument("--data-root", type=Path, help="folder with mnist/, adult/ and so on")
    parser.add_argument("--download", action="store_true", help="download MNIST if missing")
    parser.add_argument(
        "--out", type=Path, default=Path("fedsim-runs/papers"), help="folder of items and runs"
    )
    parser.add_argument("--record", action="store_true", help="write papers/results and Evidence")
    parser.add_argument("--list", action="store_true", help="list the items with their cost")
    options = parser.parse_args()
    names = options.names or [*STUDIES, *SOURCES]
    if options.smoke and options.record:
        parser.error("--smoke measures nothing worth a record; drop --smoke or --record")
    means = Means(
        Scale.SMOKE if options.smoke else Scale.FULL,
        options.out.expanduser().absolute(),
        options.data_root and options.data_root.expanduser().absolute(),
        options.download,
    )
    _machine()
    studies = [name for name in names if name in STUDIES]
    sources = [name for name in names if name not in STUDIES]
    try:
        items = making.chosen(sources)
        if options.list:
            _list(items, means)
            return
        for name in studies:
            measure(name, options)
        if items:
            make(items, means, sources, options.record)
    except InputError as error:
        parser.error(str(error))


def measure(name: str, options: argparse.Namespace) -> None:
    """Print the tables of a study, and record its numbers if they are asked for."""
    console, tables = Console(), []
    study = importlib.import_module(name)
    # Flower sets its level when it is imported: a study has thousands of rounds to tell of.
    logging.getLogger("flwr").setLevel(logging.WARNING)
    begun = time.perf_counter()
    for table in study.measure(options.smoke, options.data_root):
        show(table, console)
        tables.append(table)
    if options.record:
        evidence.record_tables(name, tables, _measured(time.perf_counter() - begun))


@cache
def _machine() -> dict[str, str]:
    """Return where and on which commit the command runs: its own files do not make it dirty."""
    return machine()


def _measured(seconds: float) -> dict[str, Any]:
    here = _machine()
    return {"commit": here["commit"], "date": here["date"], "seconds": round(seconds)}


def make(items: Sequence[Item], means: Means, named: list[str], record: bool) -> None:
    """Make items, and print each with its numbers beside the source's."""
    console, made = Console(), []
    skipped = making.skipped(items, means, named)
    for title, why in skipped.items():
        means.say(f"Skipped: {title}: {why}")
    for item in making.make([item for item in items if item.title not in skipped], means):
        made.append(item)
        printed(item, console)
        if record:
            evidence.record_item(item, _measured(item.seconds))
    means.say(counted(made))
    means.say(f"Items and pictures: {means.folder / making.ITEM_FOLDER}")


def printed(item: MadeItem, console: Console) -> None:
    """Print an item: its conclusion, its numbers beside the source's, and its tables."""
    found = item.finding
    print(f"{item.title}\n    {item.command}\n{found.conclusion}")
    rows = [(one.name, *compared_cells(one), agreement(one).kind) for one in found.numbers]
    columns = ("number", "the source", "ours (95 %)", "theory", "agreement")
    whys = {one.departs: None for one in found.numbers if agreement(one).kind == "departs"}
    note = " ".join([table_agreement(found.numbers), *(f"Departs: {why}." for why in whys if why)])
    if rows:
        show(Table(item.title, columns, list(rows), note), console)
    for grid in found.grids:
        show(Table(grid.title, tuple(grid.headings), [tuple(row) for row in grid.rows]), console)


def _list(items: Sequence[Item], means: Means) -> None:
    for item in items:
        missing = item.missing(means)
        data = [f"{name}, missing" if name in missing else name for name in item.needs]
        cost = f"{item.minutes:g} min{', when named' * item.too_long(means)}"
        print("  ".join((f"{item.source}/{item.name}", item.title, cost, *data)))


if __name__ == "__main__":
    main()
