"""`fedsim report`: make the report of a finished run again, or compare several."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from adversaries.errors import InputError
from fedsim.audits.results.report import encode, schema
from fedsim.cli import gate
from fedsim.cli.experiments import compare
from fedsim.cli.experiments.options import Verbose
from fedsim.cli.options import AsJson, Confidence, Delta, FailIf
from fedsim.cli.terminal import Terminal, print_json
from fedsim.common.strict_json import report_json
from fedsim.federation.runs.run_directory import RunDirectory


def report(
    directories: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN_DIR...", help="Finished runs; one, or several."),
    ] = None,
    confidence: Confidence = None,
    delta: Delta = None,
    limit_advantage: Annotated[
        float | None,
        typer.Option(help="Your own limit of the advantage [report.limit-advantage]; 0 for none."),
    ] = None,
    limit_belief: Annotated[
        float | None,
        typer.Option(help="Your own limit of the belief [report.limit-belief]; 0 for none."),
    ] = None,
    fail_if: FailIf = None,
    verbose: Verbose = False,
    json_: AsJson = False,
    as_schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of report.json, and no report.")
    ] = False,
) -> None:
    """Write report.json, report.html and the figures of RUN_DIR anew from its transcript.

    Of a training, those that are for whoever runs the server; the model's card stays as it is.

    Given several runs, compare them instead, as fedsim compare does.

    Example: fedsim report fedsim-runs/digits-20260101T120000Z --confidence 0.99
    """
    if as_schema:
        if directories:
            raise InputError("--schema is the same for every run; leave RUN_DIR out")
        typer.echo(json.dumps(schema(), indent=2))
        return
    if not directories:
        raise InputError("the report of what? Give RUN_DIR, or --schema")
    runs = [RunDirectory.open(directory) for directory in directories]
    given = {"report.limit-advantage": limit_advantage, "report.limit-belief": limit_belief}
    limits = {key: value for key, value in given.items() if value is not None}
    stated = bool(limits) or confidence is not None or delta is not None
    if len(runs) > 1:
        if fail_if:
            raise InputError("--fail-if is for one report; give one RUN_DIR after the other")
        if stated:
            raise InputError(
                "--confidence, --delta and limits make one report anew; give one RUN_DIR, then "
                "compare"
            )
        compare.show(directories, None, json_)
        return
    from fedsim.report import writing  # noqa: PLC0415
    from fedsim.report.summary import summary  # noqa: PLC0415

    (run,) = runs
    training = run.config.run.job == "training"
    checked = gate.asked(fail_if, "training" if training else "run")
    if training:
        checked.exit_by(_of_training(run, stated, json_))
        return
    made = writing.write_report(run, confidence, delta, limits)
    document = encode(made)
    if json_:
        print_json(document)
    else:
        console = Terminal(stderr=True)
        console.print(summary(made, verbose))
        console.print(f"Report: {run.path / 'report.html'}", soft_wrap=True, highlight=False)
    checked.exit_by(document)


def _of_training(run: RunDirectory, stated: bool, as_json: bool) -> dict[str, Any]:
    """Write the report of a training anew, and return it as report.json has it.

    Raises InputError with options of an experiment's.
    """
    from fedsim.report import model_card, training_report  # noqa: PLC0415

    if stated:
        raise InputError(
            "--confidence, --delta and limits are for an experiment's report; a training's epsilon "
            "is stated at the delta it was configured with (fedsim account has any other)"
        )
    document: dict[str, Any] = report_json(training_report.write(run))
    if as_json:
        print_json(document)
        return document
    console = Terminal(stderr=True)
    console.print(model_card.summary(model_card.read(run)))
    console.print(f"Report: {run.path / 'report.html'}", soft_wrap=True, highlight=False)
    return document
