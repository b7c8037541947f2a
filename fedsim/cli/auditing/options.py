"""The options of `fedsim audit`."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedsim.audits.judgement.claim import claim_given, exit_status
from fedsim.audits.judgement.options import AuditOptions
from fedsim.cli import gate
from fedsim.cli.options import (
    CLIENTS,
    DATA_ROOT,
    ROUNDS,
    TRIALS,
    Confidence,
    Delta,
    FailIf,
)
from fedsim.privacy.mechanism import Neighbouring

if TYPE_CHECKING:  # pydantic and torch are slow
    from fedsim.audits.judgement.report import AuditReport

Recorded = Annotated[
    Path, typer.Argument(metavar="TRANSCRIPT", help="Transcript, or folder of transcripts.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Directory of the report. Default: NAME-audit beside the transcript."
    ),
]
OutOfApp = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Directory of the report. Default: no report.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with status 3 if nothing is claimed.")]
StrictOfLoop = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Support a claim only if it holds at the least noise that was measured, and exit "
        "with status 3 if nothing is claimed.",
    ),
]
ClaimedEpsilon = Annotated[float | None, typer.Option(help="Epsilon claimed for the whole run.")]
ClaimedDelta = Annotated[float | None, typer.Option(help="Delta of --claimed-epsilon.")]


@dataclass(frozen=True)
class Claimed:
    """The claim to judge, and what ends an audit with exit status 3."""

    claimed_epsilon: ClaimedEpsilon = None
    claimed_delta: ClaimedDelta = None
    claimed_unit: Annotated[
        Literal["client", "record"] | None,
        typer.Option(
            help="Unit that the claim protects: a client (its whole update) or a record of its "
            "data. A claim about an app or a federation needs it.",
        ),
    ] = None
    strict: Strict = False
    fail_if: FailIf = None

    def judging(
        self, options: AuditOptions, out: Path | None, as_json: bool, *kinds: str
    ) -> "OfEvery":
        """Return all options of an audit. Raises InputError if a condition of the gate is wrong."""
        claim = claim_given(self.claimed_epsilon, self.claimed_delta, self.claimed_unit)
        claimed = replace(options, claim=claim)
        return OfEvery(claimed, out, as_json, self.strict, gate.parsed(self.fail_if, *kinds))


App = Annotated[
    Path, typer.Argument(metavar="APP", help="Directory of a Flower app. Its code is run.")
]
Trials = Annotated[
    int | None, typer.Option(help=f"{TRIALS}: runs of the app under attack.", show_default="300")
]
Rounds = Annotated[
    int | None,
    typer.Option(help=f"{ROUNDS}: num-server-rounds of the app.", show_default="that of the app"),
]
Clients = Annotated[int | None, typer.Option(help=f"{CLIENTS} of the app.", show_default="5")]
RunConfig = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="Run config of the app. May be repeated."),
]
NeighbouringOfApp = Annotated[
    Neighbouring | None,
    typer.Option(
        help="Difference between the two worlds: the client sends nothing (add-remove) "
        "or another update (replace).",
        show_default="add-remove",
    ),
]
TimeLimit = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Time limit of each run.", show_default="3600"),
]

LoopFunction = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:FUNCTION",
        help="Training function of features, labels and a seed, such as "
        "path/to/mine.py:train. Its code is run.",
    ),
]
TrialsOfLoop = Annotated[
    int | None,
    typer.Option(help=f"{TRIALS}. Half of them train with the target.", show_default="400"),
]
DataOfLoop = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|NPZ|MODULE:NAME",
        help="Training data: digits, breast-cancer, or an .npz file of features and labels. Or "
        "your own code: a pair of arrays, or a function without parameters that returns a pair.",
        show_default="digits",
    ),
]
RecordsOfLoop = Annotated[
    int | None,
    typer.Option(help="Number of records in D, including the target.", show_default="59"),
]
TargetOfLoop = Annotated[
    str | None,
    typer.Option(
        metavar="crafted|real",
        help="Target record. crafted: the worst of three crafted pairs; real: a record "
        "of the data.",
        show_default="crafted",
    ),
]
NeighbouringOfLoop = Annotated[
    Neighbouring | None,
    typer.Option(
        help="Difference between the two worlds: the target is missing (add-remove) or "
        "replaced (replace).",
        show_default="add-remove",
    ),
]
WorkersOfLoop = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Run the function in N processes at once. Its code stays on this machine."
    ),
]

Once = Annotated[bool, typer.Option("--once", help="Exit after one run.")]
Patience = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", help="Time without new data after which a run counts as stopped."
    ),
]


@dataclass(frozen=True)
class TranscriptOptions:
    """The options of the audit of a transcript; most are for an auditor's node."""

    data_root: Annotated[
        Path | None, typer.Option(metavar="PATH", help=f"{DATA_ROOT}. For an auditor's transcript.")
    ] = None
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Local copy of the run's model.weights. For an auditor's transcript.",
        ),
    ] = None
    canary_seed_file: Annotated[
        Path | None,
        typer.Option(
            help="File with a line for each client that plants canaries: its canary-seed and "
            "canary-count. For an auditor's transcript."
        ),
    ] = None
    no_challenge: Annotated[
        bool,
        typer.Option(
            "--no-challenge", help="Skip everything that needs data. For an auditor's transcript."
        ),
    ] = False
    worlds: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Run directory with the true world of each trial, to score the guesses. For an "
            "auditor's transcript.",
        ),
    ] = None
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"{ROUNDS}: those that the recorded client takes part in. A claim is judged once "
            "they are there. For a participant's transcript.",
            show_default="unknown",
        ),
    ] = None
    delta: Delta = None
    confidence: Confidence = None


@dataclass(frozen=True)
class OfEvery:
    """The options that all audits share.

    Attributes:
        out: directory of the report; None for one beside the transcript.
        strict: an audit without a claim ends with exit status 3.
    """

    options: AuditOptions
    out: Path | None
    as_json: bool
    strict: bool
    gate: gate.Gate

    def exit_status(self, audit: "AuditReport") -> int:
        """Return the exit status of an audit: the larger of its verdict's and the gate's."""
        shut = self.gate.status(audit.report)
        return max(exit_status(audit.verdict, self.strict), shut)

    def directory(self, transcript: Path) -> Path:
        """Return the directory of a transcript's report."""
        beside = transcript.with_name(f"{transcript.stem}-audit")
        return beside if self.out is None else self.out
