"""What the sources and the documentation state, made again.

python papers [NAME ...] [--smoke] [--data-root DIR] [--out DIR] [--write docs]

A NAME is a study, which prints its tables; a source, whose tables and figures are made again and
compared with the published ones; or one item of a source, such as bernau/figure-3. Items are kept
in --out, so that an interrupted command continues. --write puts tables between `<!-- NAME -->` and
`<!-- /NAME -->` of the page, or of that page of the folder, which has these marks, and a note for
each source into the folder beside `<!-- reproduction -->`.
"""

import argparse
import importlib
import logging
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

ROOT = Path(__file__).parents[1]
STUDY_FOLDER = ROOT / "papers" / "studies"
# Tables are printed and written as those of the benchmarks.
sys.path = [str(ROOT), *sys.path[1:], str(STUDY_FOLDER), str(ROOT / "tests" / "benchmarks")]

from tables import machine, markdown, show  # noqa: E402

from adversaries.errors import InputError  # noqa: E402
from papers import making, notes  # noqa: E402
from papers.findings import Item, Means, Scale  # noqa: E402
from papers.registry import SOURCES  # noqa: E402

STUDIES = sorted({module.name for module in pkgutil.iter_modules([str(STUDY_FOLDER)])})
"""Modules of studies: `measure(smoke, data_root)` yields the tables of one."""

REPRODUCTION = "reproduction"
"""Name of the marks between which the table of all items stands."""


def main() -> None:
    """Run the chosen studies and make the chosen items; write them where they are documented."""
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
    parser.add_argument("--write", type=Path, metavar="DOCS", help="where the tables are written")
    parser.add_argument("--list", action="store_true", help="list the items with their cost")
    options = parser.parse_args()
    names = options.names or [*STUDIES, *SOURCES]
    if options.smoke and options.write:
        parser.error("--smoke measures nothing worth writing; drop --smoke or --write")
    means = Means(
        Scale.SMOKE if options.smoke else Scale.FULL,
        options.out.expanduser().absolute(),
        options.data_root and options.data_root.expanduser().absolute(),
        options.download,
    )
    pages = places(options.write) if options.write else {}
    studies = [name for name in names if name in STUDIES]
    sources = [name for name in names if name not in STUDIES]
    needed = [*studies, *([REPRODUCTION] if sources else [])]
    if options.write and (missing := [name for name in needed if name not in pages]):
        parser.error(f"{options.write} has no place for {', '.join(missing)}")
    try:
        items = making.chosen(sources)
        if options.list:
            _list(items, means)
            return
        for name in studies:
            measure(name, options.smoke, options.data_root, pages.get(name))
        if items:
            make(items, means, sources, pages.get(REPRODUCTION))
    except InputError as error:
        parser.error(str(error))


def measure(name: str, smoke: bool, data_root: Path | None, page: Path | None) -> None:
    """Print the tables of a study, and write them into a page."""
    console, tables = Console(), []
    study = importlib.import_module(name)
    # Flower sets its level when it is imported: a study has thousands of rounds to tell of.
    logging.getLogger("flwr").setLevel(logging.WARNING)
    for table in study.measure(smoke, data_root):
        show(table, console)
        tables.append(table)
    if page is not None:
        replace(page, name, markdown(tables, machine()))


def make(items: Sequence[Item], means: Means, named: list[str], page: Path | None) -> None:
    """Make items, and write a note of all kept ones for each source."""
    skipped = making.skipped(items, means, named)
    for title, why in skipped.items():
        means.say(f"Skipped: {title}: {why}")
    for _ in making.make([item for item in items if item.title not in skipped], means):
        pass
    made = making.all_made(means)
    notes.write_notes(means.folder, made)
    if page is not None:
        folder = page.with_suffix("")
        notes.write_notes(folder, made, f"[The sources, made again](../{page.name})\n\n")
        replace(page, REPRODUCTION, notes.pooled(made, folder.name))
    means.say(notes.counted(made))
    means.say(f"Notes: {means.folder}")


def _list(items: Sequence[Item], means: Means) -> None:
    for item in items:
        missing = item.missing(means)
        data = [f"{name}, missing" if name in missing else name for name in item.needs]
        cost = f"{item.minutes:g} min{', when named' * item.too_long(means)}"
        print("  ".join((f"{item.source}/{item.name}", item.title, cost, *data)))


def places(docs: Path) -> dict[str, Path]:
    """Return the page that has the marks of each name, of a page or of a folder of pages."""
    found: dict[str, Path] = {}
    for page in sorted(docs.rglob("*.md")) if docs.is_dir() else [docs]:
        text = page.read_text(encoding="utf-8")
        names = (*STUDIES, REPRODUCTION)
        found |= {name: page for name in names if f"<!-- {name} -->" in text}
    return found


def replace(page: Path, name: str, text: str) -> None:
    """Write other text between the marks of a name."""
    before, _, rest = page.read_text(encoding="utf-8").partition(f"<!-- {name} -->")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    page.write_text(f"{before}<!-- {name} -->\n\n{text}\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
