"""`fedsim compare`: several runs side by side; `fedsim open`: the page of one."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from adversaries.errors import InputError
from fedsim.audits.results import report as results
from fedsim.cli.options import AsJson
from fedsim.cli.terminal import Terminal, print_json
from fedsim.common import report_directory
from fedsim.federation.runs.run_directory import RunDirectory


def compare(
    directories: Annotated[
        list[Path], typer.Argument(metavar="RUN_DIR...", help="Finished runs, two or more.")
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory of the page; default none.")
    ] = None,
    json_: AsJson = False,
) -> None:
    """Compare runs: every trust model and vantage side by side, as a table and as a page.

    Example: fedsim compare fedsim-runs/central fedsim-runs/local --out comparison
    """
    if len(directories) < 2:
        raise InputError("compare with what? Give two run directories or more")
    show(directories, out, json_)


def show(directories: list[Path], out: Path | None, as_json: bool) -> None:
    """Print the comparison of finished runs, and write its page if there is a place for it."""
    from fedsim.report import comparison  # noqa: PLC0415  (matplotlib)

    if out is not None:
        report_directory.check_new(out, replacing=comparison.KIND)
    reports = [results.read(RunDirectory.open(directory)) for directory in directories]
    rows = comparison.side_by_side(directories, reports)
    if as_json:
        print_json({"runs": rows})
    else:
        Terminal().print(comparison.table(rows))
    if out is None:
        return
    report_directory.create(out)
    with report_directory.refusing(out):
        page = comparison.write(rows, out)
    Terminal(stderr=True).print(f"Report: {page}", soft_wrap=True, highlight=False)


def open_(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A run, or whatever else has a report.html.")
    ],
) -> None:
    """Open the page of a run in the browser; print where it lies where there is no browser.

    Example: fedsim open fedsim-runs/digits-20260101T120000Z
    """
    page = directory if directory.suffix == ".html" else directory / "report.html"
    if not page.is_file():
        raise InputError(
            f"'{directory}' has no report.html; a run has one once it is finished, and fedsim "
            "report makes it again"
        )
    try:
        shown = webbrowser.open(page.resolve().as_uri())
    except webbrowser.Error:
        shown = False
    if not shown:
        typer.echo(page)
