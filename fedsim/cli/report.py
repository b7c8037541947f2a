"""`fedsim report`: make the report of a finished run again, or compare several."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedsim.cli.terminal import Terminal
from fedsim.errors import InputError
from fedsim.run_directory import RunDirectory


def report(
    directories: Annotated[
        list[Path], typer.Argument(metavar="RUN_DIR...", help="Finished runs; one, or several.")
    ],
    confidence: Annotated[
        float | None, typer.Option(help="Confidence of every interval and bound, e.g. 0.99.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Delta at which every epsilon is stated.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the comparison of vantages as JSON.")
    ] = False,
) -> None:
    """Write report.json, report.html and the figures of RUN_DIR anew from its transcript.

    With several runs, or with --json, compare what theirs say of every trust and vantage instead.

    Example: fedsim report fedsim-runs/digits-20260101T120000Z --confidence 0.99
    """
    runs = [RunDirectory.open(directory) for directory in directories]
    if as_json or len(runs) > 1:
        if confidence is not None or delta is not None:
            raise InputError(
                "--confidence and --delta make one report anew; give one RUN_DIR without --json, "
                "then compare"
            )
        _compare(directories, runs, as_json)
        return
    from fedsim import audit  # noqa: PLC0415
    from fedsim.report import summary  # noqa: PLC0415

    (run,) = runs
    console = Terminal(stderr=True)
    console.print(summary(audit.write_report(run, confidence=confidence, delta=delta)))
    console.print(f"Report: {run.path / 'report.html'}", soft_wrap=True, highlight=False)


def _compare(directories: list[Path], runs: list[RunDirectory], as_json: bool) -> None:
    from fedsim import comparison  # noqa: PLC0415

    reports = [run.read_report() for run in runs]
    rows = comparison.side_by_side(directories, reports)
    if as_json:
        print(json.dumps({"runs": rows}, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        Terminal().print(comparison.table(rows))
