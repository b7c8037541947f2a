"""Options that several commands have: the same words for the same things.

What an option with a name of these means besides, a command adds to the words.
"""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_CONFIDENCE = 0.95

CONFIG = "Experiment file (TOML), or a bundled one by its name (fedsim config examples)."
DELTA = "δ, the probability with which the guarantee may fail."
DELTA_DEFAULT = "of the configuration, else 1e-5"
SEED = "Seed of every random number"
TRIALS = "How many trials"
ROUNDS = "How many rounds, k"
CLIENTS = "How many clients, m"
DATA_ROOT = "Where this machine has the data"
RUN_OUT = "Run directory; default fedsim-runs/NAME-TIME."


def bundled(given: Path | None) -> Path | None:
    """Return the file of a configuration, a bundled one where there is no other; say so."""
    from fedsim.common import configurations  # noqa: PLC0415

    found = None if given is None else configurations.bundled(given)
    if found != given:
        typer.echo(f"There is no '{given}' here; taking the bundled {found}", err=True)
    return found


ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help=CONFIG, callback=bundled)]
ConfigFileUnlessResumed = Annotated[
    Path | None, typer.Argument(metavar="[CONFIG]", help=CONFIG, callback=bundled)
]
RunOut = Annotated[Path | None, typer.Option(metavar="DIR", help=RUN_OUT)]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override any key; may be repeated."),
]
AcceptEpsilon = Annotated[
    float | None,
    typer.Option(
        metavar="E",
        help="Let a continued run release up to this ε in total.",
    ),
]
Rehearsal = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN_DIR", help="A fedsim rehearse of this file, whose findings the card tells."
    ),
]
Seed = Annotated[int | None, typer.Option(help=f"{SEED} [run.seed].")]
Delta = Annotated[float | None, typer.Option(help=DELTA, show_default=DELTA_DEFAULT)]
Confidence = Annotated[
    float | None,
    typer.Option(
        help="Confidence of every interval and bound.", show_default="of the configuration, or 0.95"
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress and no summary.")]
FailIf = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONDITION",
        help="Exit with 3 if a number of the report is so, or cannot be told: "
        "'advantage.low > .1', with any path of report.json, or advantage, advantage.low, "
        "advantage.high, belief, epsilon, epsilon.low, accuracy, alarms. May be repeated.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
