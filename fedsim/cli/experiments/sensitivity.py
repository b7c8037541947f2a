"""`fedsim sensitivity`: the pair of neighbouring data sets to audit."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from fedsim import config as configuration
from fedsim.cli.options import TRIALS, AsJson, ConfigFile, SetOption
from fedsim.cli.terminal import Terminal, print_json
from fedsim.common import report_directory

if TYPE_CHECKING:
    from adversaries.neighbours.search import Progress
    from fedsim.studies.sensitivity.sensitivity_study import Stages


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
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory of the report. Default: fedsim-runs/NAME-sensitivity-TIME.",
        ),
    ] = None,
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
    config = configuration.load(config_file, overrides)
    directory = out or report_directory.timed(f"{config.run.name}-sensitivity")

    from fedsim.studies.sensitivity import sensitivity_report, sensitivity_study  # noqa: PLC0415

    report_directory.check_new(directory)
    sensitivity_study.check(config, top, trials)
    console = Terminal(stderr=True)
    with _bars(console) as stages:
        study = sensitivity_study.study(config, top, trials, stages)
    with report_directory.refusing(directory):
        page = sensitivity_report.write(study, directory)
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
