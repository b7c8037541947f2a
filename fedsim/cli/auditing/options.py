"""The options of `fedsim audit`, as a user gives them, and what belongs together among them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fedsim.audits.judgement.claim import Claim
from fedsim.audits.judgement.verdict import Verdict, exit_status
from fedsim.cli.gate import Gate
from fedsim.cli.options import CLIENTS, DATA_ROOT, DEFAULT_CONFIDENCE, ROUNDS, TRIALS
from fedsim.privacy.delta import ASSUMED
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
        "canaries, its canary-seed and canary-count."
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
    """What every audit takes: the claim it judges, how sure it is to be, and where it reports.

    Attributes:
        claim: what somebody claims; None where nobody does.
        delta: of --delta; None where it was left out.
        confidence: of --confidence, in (0, 1) once checked; None where it was left out.
        out: the directory of the report; None for one beside the transcript.
        as_json: whether the report goes to standard output as well.
        strict: whether an audit without a claim ends with the exit status 3.
        gate: what its report must not show.
    """

    claim: Claim | None
    delta: float | None
    confidence: float | None
    out: Path | None
    as_json: bool
    strict: bool
    gate: Gate

    @property
    def level(self) -> float:
        """The confidence of every interval."""
        return DEFAULT_CONFIDENCE if self.confidence is None else self.confidence

    @property
    def stated_at(self) -> float:
        """The delta at which epsilons of a transcript are stated: a claim's, if there is one."""
        if self.claim is not None:
            return self.claim.delta
        return ASSUMED if self.delta is None else self.delta

    def exit_status(self, verdict: Verdict, report: Mapping[str, Any]) -> int:
        """Return the exit status of an audit: the larger of its verdict's and the gate's.

        Args:
            verdict: of the audit.
            report: of it, as report.json has it.
        """
        return max(exit_status(verdict, self.strict), self.gate.status(report))

    def directory(self, transcript: Path) -> Path:
        """Return where the report of a transcript goes: beside it, unless somebody says."""
        beside = transcript.with_name(f"{transcript.stem}-audit")
        return beside if self.out is None else self.out


@dataclass(frozen=True)
class OfApps:
    """What is for a Flower app alone, as `audit_directory` takes it; None where left out.

    Attributes:
        trials: how often the app is run under attack.
        rounds: its num-server-rounds.
        clients: how many clients it is run with.
        run_config: KEY=VALUE, each of its run config.
        neighbouring: what a client sends in the other world: nothing, or another update.
        seed: of every random number.
        time_limit: seconds that one run of the app may take.
    """

    trials: int | None
    rounds: int | None
    clients: int | None
    run_config: list[str] | None
    neighbouring: Neighbouring | None
    seed: int | None
    time_limit: float | None


@dataclass(frozen=True)
class OfLoops:
    """What is for a training function alone, as `audit_loop` takes it; None where left out.

    Attributes:
        trials: judged runs.
        data: what it trains on.
        records: of D.
        target: crafted or real.
        neighbouring: how D' differs.
        seed: of every random number.
        time_limit: seconds that a request of up to 25 runs may take.
    """

    trials: int | None
    data: str | None
    records: int | None
    target: str | None
    neighbouring: Neighbouring | None
    seed: int | None
    time_limit: float | None


@dataclass(frozen=True)
class OfAuditors:
    """What is for the transcript of an auditor's node alone; None where left out.

    Attributes:
        data_root: where this machine has the run's dataset.
        canary_seed_file: has the seed and the number of each client's canaries.
        no_challenge: whether no beliefs about the challenge are worked out, which takes the data.
        worlds: the run's directory, whose bits say whether the beliefs were right.
    """

    data_root: Path | None
    canary_seed_file: Path | None
    no_challenge: bool | None
    worlds: Path | None


def given(options: OfApps | OfLoops | OfAuditors) -> dict[str, Any]:
    """Return those options of a group that were not left out, by the names of its fields."""
    return {name: value for name, value in vars(options).items() if value is not None}
