"""`fedsim membership`, `reconstruct` and `sensitivity`: attacks on a federation, and its target."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from adversaries.errors import InputError
from fedsim import config as configuration
from fedsim.cli.options import TRIALS, AsJson, ConfigFile, Seed, SetOption
from fedsim.cli.terminal import Terminal, print_json
from fedsim.common import report_directory

if TYPE_CHECKING:  # torch, which takes a second
    from adversaries.neighbours.search import Progress
    from fedsim.studies.sensitivity.sensitivity_study import Stages

CONTRADICTED = 4
"""Exit status where the measurement contradicts theory, on the scale of audits."""


def _directory_of(study: str) -> Any:
    default = f"fedsim-runs/NAME-{study}-TIME"
    return typer.Option(metavar="DIR", help=f"Directory of the report. Default: {default}.")


def membership(
    *,
    config_file: ConfigFile,
    models: Annotated[
        int,
        typer.Option(
            help="Number of models to train. Half are shadow models, the others are attacked."
        ),
    ] = 128,
    attacks: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Attacks, separated by commas, or all [audit.attacks]."),
    ] = None,
    seed: Seed = None,
    set_: SetOption = None,
    json_: AsJson = False,
    out: Annotated[Path | None, _directory_of("membership")] = None,
) -> None:
    """Run membership inference attacks on a federation's models: who was in the training data?

    Trains many models at once with the configured DP-SGD, each on a random half of D. Half of them
    are shadow models. Attacks every record at each of the other models, from losses alone: Yeom's
    rule, LiRA and RMIA. Writes report.json, and report.html with the curves on log scales and the
    limits of differential privacy.

    Exit status: 0 no contradiction; 2 bad input; 4 an attack has more advantage than the noise
    allows.

    Examples:

    fedsim membership configs/digits.toml

    fedsim membership configs/digits.toml --models 256 --attacks lira,rmia

    fedsim membership configs/mnist.toml --set data.root=DIR --set privacy.sensitivity=global --json
    """
    overrides = configuration.parse_overrides(set_)
    options = {"run.seed": seed, "audit.attacks": attacks}
    overrides |= {key: value for key, value in options.items() if value is not None}
    name = configuration.load(config_file, overrides).run.name
    directory = out or report_directory.timed(f"{name}-membership")

    from fedsim import api_studies  # noqa: PLC0415  (torch)
    from fedsim.studies.membership import membership_report  # noqa: PLC0415

    report_directory.check_new(directory)
    console = Terminal(stderr=True)
    report = api_studies.attacked(config_file, models, overrides, console)
    page = membership_report.write_membership(report, directory)
    if json_:
        print_json(report.as_json())
    console.print(membership_report.summary(report))
    console.print(f"Report: {page}", soft_wrap=True, highlight=False)
    if report.alarms:
        raise typer.Exit(CONTRADICTED)


def reconstruct(
    config_file: ConfigFile,
    candidates: Annotated[
        int | None,
        typer.Option(
            help="Number of candidate records, at most 1000. The training uses one of them. "
            "Default: 100."
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Column whose value in the target record is guessed instead: a column of a table, "
            "or label.",
        ),
    ] = None,
    prior: Annotated[
        Literal["uniform", "data"],
        typer.Option(
            help="Prior probabilities of the column's values: all equal, or their shares outside D."
        ),
    ] = "uniform",
    trials: Annotated[int, typer.Option(min=1, help=f"{TRIALS}.")] = 1000,
    seed: Seed = None,
    set_: SetOption = None,
    json_: AsJson = False,
    out: Annotated[Path | None, _directory_of("reconstruction")] = None,
) -> None:
    """Measure how often a participant guesses which record, or which value of a column, a training
    used.

    In every trial one of the candidates, drawn at random, is in the training data. The adversary
    computes the exact posterior over all candidates from the released sums. The report compares its
    success with guessing, with a prediction, and with the limit that the noise sets to any attack.

    Exit status: 0 no contradiction; 2 bad input; 4 the measurement contradicts theory.

    Examples:

    fedsim reconstruct configs/digits.toml --candidates 100

    fedsim reconstruct configs/digits.toml --column label --trials 400
    """
    from fedsim import api_answers  # noqa: PLC0415  (torch)
    from fedsim.report.document import terminal  # noqa: PLC0415

    overrides = configuration.parse_overrides(set_)
    if "trials.count" in overrides:
        raise InputError("--set trials.count has no effect here; give --trials")
    overrides |= {} if seed is None else {"run.seed": seed}
    name = configuration.load(config_file, overrides).run.name
    directory = out or report_directory.timed(f"{name}-reconstruction")
    answer = api_answers.reconstruct(
        config_file,
        candidates=candidates,
        column=column,
        prior=prior,
        trials=trials,
        out=directory,
        overrides=overrides,
    )
    console = Terminal(stderr=True)
    if json_:
        print_json(answer.report)
    console.print(terminal.shown(*answer.blocks))
    console.print(f"Report: {answer.page}", soft_wrap=True, highlight=False)
    if answer.report["alarms"]:
        raise typer.Exit(CONTRADICTED)


def sensitivity(
    config_file: ConfigFile,
    measure: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Dissimilarity measure that ranks the pairs [challenge.dissimilarity].",
        ),
    ] = None,
    top: Annotated[
        int, typer.Option(help="Number of pairs to show from each end of the ranking.")
    ] = 3,
    trials: Annotated[int, typer.Option(help=f"{TRIALS} that measure local sensitivity.")] = 20,
    set_: SetOption = None,
    json_: AsJson = False,
    out: Annotated[Path | None, _directory_of("sensitivity")] = None,
) -> None:
    """Find the pair of neighbouring data sets to audit, and its distance from the worst case.

    Ranks records (add-remove) or pairs of a record and its replacement (replace) by dissimilarity,
    which needs no gradients. Then compares the choice with the truth: the local sensitivity of
    every pair at the first model, and of the chosen pairs during training. Writes report.html, with
    the records themselves, and report.json. All results are measured on the private data; none of
    them is a DP release.

    Examples:

    fedsim sensitivity configs/digits.toml

    fedsim sensitivity configs/digits.toml --measure cosine --set privacy.neighbouring=replace

    fedsim sensitivity configs/mnist.toml --set data.root=DIR --top 5 --trials 250 --json
    """
    overrides = configuration.parse_overrides(set_)
    if measure is not None:
        overrides["challenge.dissimilarity"] = measure
    config = configuration.load(config_file, overrides, "experiment")
    directory = out or report_directory.timed(f"{config.run.name}-sensitivity")

    from fedsim.federation.server import plan  # noqa: PLC0415
    from fedsim.studies.sensitivity import sensitivity_report, sensitivity_study  # noqa: PLC0415

    report_directory.check_new(directory)
    sensitivity_study.check_study(config.experiment, top, trials)
    batch = plan.fit_batch(config).trials.batch
    console = Terminal(stderr=True)
    with _bars(console) as stages:
        study = sensitivity_study.study(
            config.experiment, config.audit.confidence, batch, top, trials, stages
        )
    page = sensitivity_report.write_sensitivity(study, directory)
    if json_:
        print_json(sensitivity_report.as_json(study))
    console.print(sensitivity_report.summary(study))
    console.print(f"Report: {page}", soft_wrap=True, highlight=False)


@contextmanager
def _bars(console: Console) -> "Iterator[Stages]":
    """Yield a function that shows a progress bar for a stage; it shows none without a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    hidden = not console.is_terminal
    with Bars(
        *columns, TimeElapsedColumn(), console=console, transient=True, disable=hidden
    ) as bars:

        def begin(name: str) -> "Progress":
            task = bars.add_task(name, total=1.0)
            return lambda done: bars.update(task, completed=done)

        yield begin
