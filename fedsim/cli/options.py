"""Options that several commands share. A command may add to their help."""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_CONFIDENCE = 0.95
CONFIG = "Experiment file (TOML), or the name of a bundled one (see fedsim config examples)."
DELTA = "Probability that the guarantee fails (δ)."
DELTA_DEFAULT = "from the configuration, else 1e-5"
SEED = "Seed of all random numbers"
TRIALS = "Number of trials"
ROUNDS = "Number of rounds (k)"
CLIENTS = "Number of clients (m)"
DATA_ROOT = "Folder or file of the data on this machine"
RUN_OUT = "Run directory. Default: fedsim-runs/NAME-TIME."


def bundled(path: Path | None) -> Path | None:
    """Return the file of a configuration: the bundled one, with a note, if the path has none."""
    from fedsim.common import configurations  # noqa: PLC0415

    file = None if path is None else configurations.bundled(path)
    if file != path:
        typer.echo(f"'{path}' does not exist; using the bundled {file}", err=True)
    return file


ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help=CONFIG, callback=bundled)]
ConfigFileUnlessResumed = Annotated[
    Path | None, typer.Argument(metavar="[CONFIG]", help=CONFIG, callback=bundled)
]
RunOut = Annotated[Path | None, typer.Option(metavar="DIR", help=RUN_OUT)]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a configuration key. May be repeated."
    ),
]
Rehearsal = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN_DIR",
        help="Run of fedsim rehearse with this configuration. Its results go on the model's card.",
    ),
]
Seed = Annotated[int | None, typer.Option(help=f"{SEED} [run.seed].")]
Delta = Annotated[float | None, typer.Option(help=DELTA, show_default=DELTA_DEFAULT)]
Confidence = Annotated[
    float | None,
    typer.Option(
        help="Confidence level of every interval and bound.",
        show_default="from the configuration, else 0.95",
    ),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print the numbers of every observer, and times.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="Hide progress and summary, but not what needs attention.")
]
FailIf = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONDITION",
        help="Exit with status 3 if this condition holds or cannot be decided, such as "
        "'advantage.low > .1'. Numbers: any path of report.json, or advantage, "
        "advantage.low, advantage.high, belief, epsilon, epsilon.low, accuracy, "
        "alarms. May be repeated.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
