"""The options of `fedsim run`, `train` and `rehearse`."""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from adversaries.errors import InputError
from fedsim.cli.options import ROUNDS, TRIALS
from fedsim.privacy import delta


class Runtime(StrEnum):
    """Runtime that carries the messages."""

    AUTO = "auto"
    INPROCESS = "inprocess"
    SIMULATION = "simulation"


Trials = Annotated[
    int | None,
    typer.Option(help=f"{TRIALS} [trials.count]. With --resume: the new total."),
]
Rounds = Annotated[int | None, typer.Option(help=f"{ROUNDS} [training.rounds].")]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="[auto|cpu|cuda]",
        help="Device that computes [run.device]. auto: CUDA if it is available.",
    ),
]
MaxMemory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Memory limit, such as 4GiB [run.max-memory]. Default: the free memory of the device.",
    ),
]
RuntimeOption = Annotated[
    Runtime,
    typer.Option(
        help="Runtime. inprocess: fastest on one machine; simulation: Flower with Ray; "
        "auto: inprocess."
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Run directory to continue, after an interruption or with more --trials.",
    ),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME:PLACE",
        help="Tracker to log to: tensorboard:DIR, mlflow:DIR or mlflow:URI. May be repeated.",
    ),
]


def print_delta(value: float, records: int, console: Console) -> None:
    """Print delta if it is the default, which depends on the number of records."""
    if value == delta.of_records(records):
        console.print(
            f"δ = {value:.3g}, 1/(10·{records}) for {records} records (privacy.delta)",
            highlight=False,
        )


def refuse_beside_resume(options: Iterable[object], job: str, allowed: str) -> None:
    """Raise InputError if any option is set that --resume does not allow."""
    if any(option is not None for option in options):
        raise InputError(
            f"--resume continues a {job} with its own configuration; leave out all other options "
            f"except {allowed}, --quiet and --json"
        )
