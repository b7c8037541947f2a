"""`fedsim report`: make the report of a finished run again."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedsim.run_directory import RunDirectory


def report(
    directory: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A finished run.")],
    confidence: Annotated[
        float | None, typer.Option(help="Confidence of every interval and bound, e.g. 0.99.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Delta at which every epsilon is stated.")
    ] = None,
) -> None:
    """Write report.json, report.html and the figures of RUN_DIR anew from its transcript.

    Example: fedsim report fedsim-runs/digits-20260101T120000Z --confidence 0.99
    """
    from fedsim import audit  # noqa: PLC0415
    from fedsim.report import summary  # noqa: PLC0415

    run = RunDirectory.open(directory)
    console = Console(stderr=True)
    console.print(summary(audit.write_report(run, confidence=confidence, delta=delta)))
    console.print(f"Report: {run.path / 'report.html'}", soft_wrap=True, highlight=False)
