"""Studies: what the estimators, attacks and audits achieve on games whose truth is known.

python papers [STUDY ...] [--smoke] [--write docs] [--data-root DIR]

Each study prints its tables; --write puts them between `<!-- STUDY -->` and `<!-- /STUDY -->` of
the page, or of that page of the folder, which has these marks.
"""

import argparse
import importlib
import logging
import pkgutil
import sys
from pathlib import Path

from rich.console import Console

HERE = Path(__file__).parent / "studies"
# Tables are printed and written as those of the benchmarks.
sys.path += [str(HERE), str(HERE.parents[1] / "tests" / "benchmarks")]

from tables import machine, markdown, show  # noqa: E402

STUDIES = sorted({module.name for module in pkgutil.iter_modules([str(HERE)])})
"""Every module beside this one: `measure(smoke, data_root)` yields its tables."""


def main() -> None:
    """Run the chosen studies; print their tables and write them where they are documented."""
    parser = argparse.ArgumentParser(prog="python papers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"{', '.join(STUDIES)}; or all")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: does everything work?")
    parser.add_argument("--write", type=Path, metavar="DOCS", help="where the tables are written")
    parser.add_argument("--data-root", type=Path, help="a folder with mnist/ and adult/ in it")
    options = parser.parse_args()
    if unknown := set(options.studies) - set(STUDIES):
        parser.error(f"no study is called {', '.join(sorted(unknown))}; there are {STUDIES}")
    if options.smoke and options.write:
        parser.error("--smoke measures nothing worth writing; drop --smoke or --write")
    chosen = options.studies or STUDIES
    pages = places(options.write) if options.write else {}
    if options.write and (missing := [name for name in chosen if name not in pages]):
        parser.error(f"{options.write} has no place for {', '.join(missing)}")
    console = Console()
    for name in chosen:
        tables = []
        study = importlib.import_module(name)
        # Flower sets its level when it is imported: a study has thousands of rounds to tell of.
        logging.getLogger("flwr").setLevel(logging.WARNING)
        for table in study.measure(options.smoke, options.data_root):
            show(table, console)
            tables.append(table)
        if name in pages:
            page = pages[name].read_text(encoding="utf-8")
            written = replaced(page, name, markdown(tables, machine()))
            pages[name].write_text(written, encoding="utf-8")


def places(docs: Path) -> dict[str, Path]:
    """Return the page that has the marks of each study, of a page or of a folder of pages."""
    found = {}
    for page in sorted(docs.rglob("*.md")) if docs.is_dir() else [docs]:
        text = page.read_text(encoding="utf-8")
        found |= {name: page for name in STUDIES if f"<!-- {name} -->" in text}
    return found


def replaced(page: str, study: str, text: str) -> str:
    """Return a page with other text between the marks of a study."""
    before, _, rest = page.partition(f"<!-- {study} -->")
    _, end, after = rest.partition(f"<!-- /{study} -->")
    return f"{before}<!-- {study} -->\n\n{text}\n{end}{after}"


if __name__ == "__main__":
    main()
