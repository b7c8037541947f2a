"""`fedsim report`, `open` and `track`: commands on existing runs."""

import json
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from adversaries.errors import InputError
from fedsim.audits.results.report import encode
from fedsim.cli import gate
from fedsim.cli.options import AsJson, Confidence, Delta, FailIf, Quiet, Verbose
from fedsim.cli.terminal import Terminal, print_json, results
from fedsim.common.strict_json import report_json
from fedsim.config import Scalar
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.report.tracking.progress import replay
from fedsim.report.tracking.trackers import Tracking, opened


def open_(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Run, or another directory with a report.html.")
    ],
) -> None:
    """Open the page of a run in the browser, or print its path where there is no browser.

    Example: fedsim open fedsim-runs/digits-20260101T120000Z
    """
    page = directory if directory.suffix == ".html" else directory / "report.html"
    if not page.is_file():
        raise InputError(
            f"'{directory}' has no report.html; finish the run first, or write its report again "
            "with fedsim report"
        )
    try:
        shown = webbrowser.open(page.resolve().as_uri())
    except webbrowser.Error:
        shown = False
    if not shown:
        typer.echo(page)


def track(
    directories: Annotated[
        list[Path], typer.Argument(metavar="RUN_DIR...", help="Run directories of any command.")
    ],
    to: Annotated[
        str,
        typer.Option(
            metavar="NAME:PLACE",
            help="Tracker to log to: tensorboard:DIR, mlflow:DIR or mlflow:URI.",
        ),
    ],
    quiet: Quiet = False,
) -> None:
    """Export finished or interrupted runs to TensorBoard or MLflow.

    Logs the same as fedsim run --track. A run that was logged before is not logged again.

    Example: fedsim track sweep/*/ --to mlflow:fedsim-mlflow
    """
    console = Terminal(stderr=True, quiet=quiet)
    runs = [RunDirectory.open(directory) for directory in directories]
    opened(to)
    for run in runs:
        tracking = Tracking(run, opened(to), to)
        replay(run, tracking)
        console.print(f"{run.path.name} is in {tracking.name}", soft_wrap=True, highlight=False)


FinishedRuns = Annotated[
    list[Path] | None, typer.Argument(metavar="RUN_DIR...", help="One or more finished runs.")
]
Schema = Annotated[
    bool, typer.Option("--schema", help="Print the JSON Schema of report.json and exit.")
]


@dataclass(frozen=True)
class Restated:
    """What a report states anew; None as configured."""

    confidence: Confidence = None
    delta: Delta = None
    limit_advantage: Annotated[
        float | None,
        typer.Option(help="Largest acceptable advantage [report.limit-advantage]. 0: no limit."),
    ] = None
    limit_belief: Annotated[
        float | None,
        typer.Option(help="Largest acceptable belief [report.limit-belief]. 0: no limit."),
    ] = None

    @property
    def limits(self) -> dict[str, Scalar]:
        options = {
            "report.limit-advantage": self.limit_advantage,
            "report.limit-belief": self.limit_belief,
        }
        return {key: value for key, value in options.items() if value is not None}


def report(
    *,
    directories: FinishedRuns = None,
    restated: Restated,
    fail_if: FailIf = None,
    verbose: Verbose = False,
    json_: AsJson = False,
    as_schema: Schema = False,
) -> None:
    """Write report.json, report.html and the figures of RUN_DIR again from its transcript.

    For a training, it writes the pages for the operator of the server; the model's card stays the
    same.

    With several runs, it writes nothing and compares them in a table, with every trust model and
    vantage point side by side.

    Example: fedsim report fedsim-runs/digits-20260101T120000Z --confidence 0.99

    Compare two runs: fedsim report fedsim-runs/central fedsim-runs/local
    """
    if as_schema:
        if directories:
            raise InputError("--schema is the same for every run; leave RUN_DIR out")
        from fedsim.report.kinds.schema import schema  # noqa: PLC0415  (Flower is slow)

        typer.echo(json.dumps(schema(), indent=2))
        return
    if not directories:
        raise InputError("fedsim report needs a run directory; give RUN_DIR, or --schema")
    runs = [RunDirectory.open(directory) for directory in directories]
    if len(runs) > 1:
        if fail_if:
            raise InputError("--fail-if checks one report; give one RUN_DIR for each command")
        if restated != Restated():
            raise InputError(
                "--confidence, --delta, --limit-advantage and --limit-belief apply to one report; "
                "give one RUN_DIR, then compare the runs"
            )
        _compare(directories, json_)
        return
    (run,) = runs
    training = run.config.run.job == "training"
    checked = gate.parsed(fail_if, "training" if training else "run")
    if training:
        checked.exit_by(_report_training(run, restated, json_))
    else:
        checked.exit_by(_report_run(run, restated, json_, verbose))


def _compare(directories: Sequence[Path], as_json: bool) -> None:
    from fedsim import api_studies  # noqa: PLC0415  (torch)
    from fedsim.report import comparison  # noqa: PLC0415  (matplotlib)

    rows = api_studies.compare(*directories).rows
    if as_json:
        print_json({"runs": rows})
    else:
        Terminal().print(comparison.summary(rows))


def _report_run(
    run: RunDirectory, restated: Restated, as_json: bool, verbose: bool
) -> dict[str, Any]:
    """Write the report of a run again, and return the content of report.json."""
    from fedsim.report import page  # noqa: PLC0415  (torch)
    from fedsim.report.summary import summary  # noqa: PLC0415

    made = page.write_report(run, restated.confidence, restated.delta, restated.limits)
    document = encode(made)
    if as_json:
        print_json(document)
        return document
    for warning in made.warnings[made.alarms :]:
        Terminal(stderr=True, highlight=False).print(f"Warning: {warning}")
    console = results()
    console.print(summary(made, f"fedsim report {run.path}", verbose=verbose))
    console.print(f"Report: {run.path / 'report.html'}", soft_wrap=True, highlight=False)
    return document


def _report_training(run: RunDirectory, restated: Restated, as_json: bool) -> dict[str, Any]:
    """Write the report of a training again, and return the content of report.json.

    Raises InputError if the user set an option of an experiment's report.
    """
    from fedsim.report import model_card, training_report  # noqa: PLC0415

    if restated != Restated():
        raise InputError(
            "--confidence, --delta, --limit-advantage and --limit-belief apply to a run of fedsim "
            "run; the report of a training uses its configured delta (for another delta, use "
            "fedsim account)"
        )
    document: dict[str, Any] = report_json(training_report.write_training_report(run).as_json())
    if as_json:
        print_json(document)
        return document
    console = results()
    console.print(model_card.summary(model_card.read_card(run)))
    console.print(f"Report: {run.path / 'report.html'}", soft_wrap=True, highlight=False)
    return document
