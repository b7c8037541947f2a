"""The options of `fedsim audit`, as a user gives them, and what belongs together among them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedsim.audits.judgement.judge import exit_status
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.judgement.report import AuditReport
from fedsim.cli.gate import Gate
from fedsim.cli.options import CLIENTS, DATA_ROOT, ROUNDS, TRIALS
from fedsim.common.strict_json import report_json
from fedsim.privacy.mechanism import Neighbouring

Recorded = Annotated[
    Path, typer.Argument(metavar="TRANSCRIPT", help="A transcript, or a folder of them.")
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Directory of the report; default NAME-audit beside it."),
]
OutOfApp = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Directory of the report; default none.")
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Exit with 3 also where nothing is claimed.")
]

ClaimedEpsilon = Annotated[
    float | None, typer.Option(help="An epsilon that somebody claims of the whole run.")
]
ClaimedDelta = Annotated[float | None, typer.Option(help="The delta of --claimed-epsilon.")]
ClaimedUnit = Annotated[
    Literal["client", "record"] | None,
    typer.Option(
        help="Whom the claim protects: a client, with its whole update as training returns it, "
        "or a record of its data.",
        show_default="as it can be told",
    ),
]

App = Annotated[
    Path, typer.Argument(metavar="APP", help="A Flower app's directory, whose code is run.")
]
Trials = Annotated[
    int | None,
    typer.Option(help=f"{TRIALS}: runs of the app under attack.", show_default="300"),
]
Rounds = Annotated[
    int | None,
    typer.Option(help=f"{ROUNDS}: its num-server-rounds.", show_default="its own"),
]
Clients = Annotated[int | None, typer.Option(help=f"{CLIENTS}, it is run with.", show_default="5")]
RunConfig = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="Its run config; may be repeated."),
]
NeighbouringOfApp = Annotated[
    Neighbouring | None,
    typer.Option(
        help="A client sends its update or none, or another update.",
        show_default="add-remove",
    ),
]
TimeLimit = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="How long one run of it may take.", show_default="3600"),
]

LoopFunction = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:FUNCTION",
        help="A training function of features, labels and a seed, whose code is run; a file's by "
        "path/to/mine.py:train.",
    ),
]
TrialsOfLoop = Annotated[
    int | None,
    typer.Option(help=f"{TRIALS}: judged runs, half of them with the target.", show_default="400"),
]
DataOfLoop = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|NPZ|MODULE:NAME",
        help="What it trains on: digits, breast-cancer, a file of features and labels, or a pair "
        "of arrays in your own code (or a function without parameters that returns one).",
        show_default="digits",
    ),
]
RecordsOfLoop = Annotated[
    int | None,
    typer.Option(help="How many records D has, the target among them.", show_default="59"),
]
TargetOfLoop = Annotated[
    str | None,
    typer.Option(
        metavar="crafted|real",
        help="The worst of three crafted pairs of worlds, or a record of the data.",
        show_default="crafted",
    ),
]
NeighbouringOfLoop = Annotated[
    Neighbouring | None,
    typer.Option(
        help="The other world lacks the target, or has another record in its place.",
        show_default="add-remove",
    ),
]

Once = Annotated[bool, typer.Option("--once", help="End after one run.")]
Patience = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        help="How long without a sign of life before a run counts as dead.",
    ),
]

DataRoot = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help=f"{DATA_ROOT}; of an auditor's transcript."),
]
CanarySeedFile = Annotated[
    Path | None,
    typer.Option(
        help="Of an auditor's transcript: a file with a line for each client that plants "
        "canaries, its canary-seed and canary-count, and text behind them for texts."
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Of an auditor's transcript: this machine's copy of the run's model.weights.",
    ),
]
NoChallenge = Annotated[
    bool,
    typer.Option("--no-challenge", help="Of an auditor's transcript: only what needs no data."),
]
Worlds = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN", help="Of an auditor's transcript: the run that tells who was right."
    ),
]


@dataclass(frozen=True)
class OfEvery:
    """How a command audits, and where it reports.

    Attributes:
        out: the directory of the report; None for one beside the transcript.
        strict: whether an audit without a claim ends with the exit status 3.
    """

    options: AuditOptions
    out: Path | None
    as_json: bool
    strict: bool
    gate: Gate

    def exit_status(self, found: AuditReport) -> int:
        """Return the exit status of an audit: the larger of its verdict's and the gate's."""
        shut = self.gate.status(report_json(found.report))
        return max(exit_status(found.verdict, self.strict), shut)

    def directory(self, transcript: Path) -> Path:
        """Return where the report of a transcript goes: beside it, unless the user names one."""
        beside = transcript.with_name(f"{transcript.stem}-audit")
        return beside if self.out is None else self.out
