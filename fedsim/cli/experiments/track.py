"""`fedsim track`: the numbers of runs that are there, written where experiments are kept."""

from pathlib import Path
from typing import Annotated

import typer

from fedsim.cli.options import Quiet
from fedsim.cli.terminal import Terminal
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.report.tracking.following import replay
from fedsim.report.tracking.numbers import Tracking
from fedsim.report.tracking.trackers import opened


def track(
    directories: Annotated[
        list[Path], typer.Argument(metavar="RUN_DIR...", help="Runs, of any command.")
    ],
    to: Annotated[
        str,
        typer.Option(metavar="NAME:PLACE", help="tensorboard:DIR, mlflow:DIR or mlflow:URI."),
    ],
    quiet: Quiet = False,
) -> None:
    """Log finished runs to TensorBoard or MLflow, or interrupted ones as far as they got.

    Writes what --track of fedsim run would have written. A run that is there already is not logged
    twice.

    Example: fedsim track sweep/*/ --to mlflow:fedsim-mlflow
    """
    console = Terminal(stderr=True, quiet=quiet)
    runs = [RunDirectory.open(directory) for directory in directories]
    opened(to)
    for run in runs:
        tracking = Tracking(run, opened(to), to)
        replay(run, tracking)
        console.print(f"{run.path.name} is in {tracking.name}", soft_wrap=True, highlight=False)
