"""The options of `fedsim run`, and what it has in common with `fedsim report`."""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from adversaries.errors import InputError
from fedsim.cli.options import ROUNDS, TRIALS
from fedsim.privacy import delta

if TYPE_CHECKING:  # pydantic
    from fedsim.config import Config


class Runtime(StrEnum):
    """Which of Flower's runtimes carries the messages."""

    AUTO = "auto"
    INPROCESS = "inprocess"
    SIMULATION = "simulation"


Trials = Annotated[
    int | None,
    typer.Option(help=f"{TRIALS} [trials.count]; with --resume, in the end."),
]
UntilHalfwidth = Annotated[
    float | None,
    typer.Option(
        metavar="H",
        help="Stop once the advantage's interval is ± H at most [trials.until-halfwidth].",
    ),
]
MaxTrials = Annotated[
    int | None,
    typer.Option(help="At most so many trials, with --until-halfwidth [trials.count]."),
]
Rounds = Annotated[int | None, typer.Option(help=f"{ROUNDS} [training.rounds].")]
Device = Annotated[
    str | None, typer.Option(metavar="[auto|cpu|cuda]", help="auto takes CUDA if it is there.")
]
MaxMemory = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Such as 4GiB; default: what the device has to spare."),
]
RuntimeOption = Annotated[
    Runtime,
    typer.Option(help="inprocess: fastest on one machine (auto). simulation: Flower with Ray."),
]
Resume = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Continue an interrupted run, or one with more --trials."),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Every measure in a table, beside the verdict.")
]
Watch = Annotated[
    bool,
    typer.Option("--watch", help="Keep live.html in the run directory: what is known so far."),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME:PLACE",
        help="Log to tensorboard:DIR, mlflow:DIR or mlflow:URI; may be repeated.",
    ),
]


def say_delta(config: "Config", console: Console) -> None:
    """Say so where delta follows the number of records: what it is where nobody gives it."""
    privacy, records = config.privacy, config.data.records
    if privacy.delta == delta.of_records(records):
        console.print(
            f"δ = {privacy.delta:.3g}, 1/(10·{records}) of the {records} records (privacy.delta)",
            highlight=False,
        )


def refuse_beside_resume(options: Iterable[object], what: str, allowed: str) -> None:
    """Raise InputError where an option was given that does not go with --resume."""
    if any(option is not None for option in options):
        raise InputError(
            f"--resume continues a {what} with its own configuration; give it alone (only "
            f"{allowed}, --quiet and --json may stand beside it)"
        )
