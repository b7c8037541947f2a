"""The options of `fedsim run`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Runtime(StrEnum):
    """Which of Flower's runtimes carries the messages."""

    AUTO = "auto"
    INPROCESS = "inprocess"
    SIMULATION = "simulation"


class DeviceName(StrEnum):
    """Where the tensors live."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


ConfigFile = Annotated[
    Path | None,
    typer.Argument(metavar="CONFIG", help="Experiment file (TOML); see configs/."),
]
Trials = Annotated[
    int | None,
    typer.Option(help="Repetitions [trials.count]; with --resume, how many in the end."),
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
    typer.Option(help="At most so many repetitions, with --until-halfwidth [trials.count]."),
]
Rounds = Annotated[int | None, typer.Option(help="Rounds k [training.rounds].")]
Seed = Annotated[int | None, typer.Option(help="Seed of every random number.")]
Out = Annotated[Path | None, typer.Option(help="Run directory; default fedsim-runs/NAME-TIME.")]
Device = Annotated[DeviceName | None, typer.Option(help="auto takes CUDA if it is there.")]
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
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress and no summary.")]
