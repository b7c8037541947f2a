"""`fedsim check-auditor`: how often an auditor's lower bound on epsilon is above the truth."""

from typing import Annotated

import typer

from adversaries.errors import InputError
from fedsim.cli.options import DEFAULT_CONFIDENCE, SEED, AsJson, Confidence, Delta
from fedsim.cli.terminal import Terminal, print_json
from fedsim.privacy.delta import ASSUMED

STATUSES = {"valid": 0, "cannot tell": 3, "invalid": 4}


def check_auditor(
    auditor: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="Your auditor: (scores, members, delta, confidence) -> a lower bound on epsilon.",
        ),
    ],
    games: Annotated[int, typer.Option(help="Number of games of each kind.")] = 2000,
    trials: Annotated[
        int, typer.Option(help="Number of trials, each with one score, in a game.")
    ] = 1000,
    delta: Delta = None,
    confidence: Confidence = None,
    seed: Annotated[int, typer.Option(help=f"{SEED}.")] = 0,
    json_: AsJson = False,
) -> None:
    """Play games with a known epsilon against an auditor, and count its bounds above the truth.

    The auditor is a Python function. It takes scores (float64 [n]), members (bool [n]), delta and
    confidence, and returns a lower bound on epsilon. Three games have no signal. The others are a
    Gaussian mechanism, a Laplace mechanism, randomized response and a sampled Gaussian mechanism.

    Exit status: 0 valid; 2 bad input; 3 cannot tell; 4 invalid.

    Example: fedsim check-auditor mine.py:auditor --games 2000
    """
    from fedsim.audits.loop.contract import imported  # noqa: PLC0415  (slow to import)
    from fedsim.report.document import terminal  # noqa: PLC0415
    from fedsim.report.tracking.progress import measuring  # noqa: PLC0415
    from fedsim.studies.auditors import auditor_check  # noqa: PLC0415

    function = imported(auditor)
    if not callable(function):
        raise InputError(f"'{auditor}' is not a function; name one that returns a lower bound")
    console = Terminal(stderr=True)
    with measuring(console, "playing games") as report_progress:
        result = auditor_check.check_auditor(
            function,
            games=games,
            trials=trials,
            delta=ASSUMED if delta is None else delta,
            confidence=DEFAULT_CONFIDENCE if confidence is None else confidence,
            seed=seed,
            name=auditor,
            report_progress=report_progress,
        )
    if json_:
        print_json(result.document)
    else:
        Terminal().print(terminal.shown(*result.blocks()))
    raise typer.Exit(STATUSES[result.verdict.value])
