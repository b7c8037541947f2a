"""Honest runs under every kind of audit: how many are accused.

What an alarm, or a finding of that severity, says of a run whose noise and clipping are as claimed
is wrong, and so is a verdict of "suspect" or "convicted" on a claim that is true. Chance is allowed
one in ten thousand of each check.
"""

import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from flwr.app import Context, Message, RecordDict
from tables import Table

from adversaries.attacks import membership_attacks
from adversaries.statistics import gaussian
from adversaries.statistics.intervals import clopper_pearson
from fedsim import client_app, server_app
from fedsim.audits.app.audit import audit as audit_app
from fedsim.audits.app.execution import opened
from fedsim.audits.app.loading import loaded
from fedsim.audits.child_process.channel import set_seeds
from fedsim.audits.judgement.claim import Claim, Verdict
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.judgement.report import AuditReport
from fedsim.audits.live import live_report
from fedsim.audits.live.live_audit import LiveAudit
from fedsim.audits.recorded import audit as transcript_audit
from fedsim.configuration import Scalar, from_run_config, to_run_config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import RUN_ID, InProcessGrid
from fedsim.federation.server.plan import preflight
from fedsim.federation.transcripts.reader import read_transcript
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism
from fedsim.reports import page
from fedsim.studies.membership import membership_game, membership_report

TESTS = Path(__file__).parents[2] / "tests"
sys.path.append(str(TESTS / "mutations"))

from variants import BASE, CORRECT, POISSON, Variant, play  # noqa: E402

APPS = TESTS / "apps"

REPEATS, TRIALS, ROUNDS = 16, 28, 4
FIRST_SEED = 3000

LOCAL: dict[str, Scalar] = {"federation.trust": "local"}
ALL: dict[str, Scalar] = {"audit.vantages": "all"}
ORACLE: dict[str, Scalar] = {"audit.mode": "oracle"}

MORE = (
    Variant("local trust, all vantages", LOCAL | ALL),
    Variant("the server's vantage", LOCAL | {"federation.vantage": "server"}),
    Variant("the released model's vantage", {"federation.vantage": "released-model"}),
    Variant("local steps", LOCAL | {"training.local-steps": 2}),
    Variant("oracle", ORACLE),
    Variant("oracle, Poisson sampling", ORACLE | POISSON),
    Variant("seldom clipped", {"training.clipping-norm": 5.0}),
    Variant("seldom clipped, Poisson sampling", POISSON | {"training.clipping-norm": 5.0}),
    Variant("canaries", {"canaries.count": 40}),
    Variant("a gradient as the challenge", {"challenge.kind": "gradient"}),
)
"""Kinds of audit that the correct variants of the mutation suite have not."""

FLOWERS = ("server", "client", "local")
"""How Flower's own federation makes noise: `privacy` of the recorded app."""

CLIENTS, DELTA, AUDITOR = 3, 1e-5, 7777
MODELS, APP_REPEATS, APP_TRIALS = 60, 4, 40

Changes = dict[str, Scalar]


@dataclass(frozen=True)
class App:
    """A Flower app that keeps what somebody claims of its clients, or of their records.

    folder: of tests/apps; changes: of its run configuration; epsilon: exactly what all of its
    rounds give, None for what the app itself claims; unit: of the claim, where it is stated;
    """

    name: str
    folder: str
    changes: Changes = field(default_factory=dict)
    epsilon: float | None = None
    unit: str | None = None


NOISE: Changes = {
    "clients": CLIENTS,
    "num-server-rounds": ROUNDS,
    "clipping-norm": 0.5,
    "noise-multiplier": 1.0,
}


def _claimed() -> float:
    """Return the epsilon of all rounds, whose signals are as long as the noise's deviation."""
    return gaussian.epsilon(math.sqrt(ROUNDS), DELTA)


def _dp_app(name: str, variant: str, **facts: Any) -> App:
    changes = NOISE | {"variant": variant}
    return App(name, "dp_app", changes, **({"epsilon": _claimed()} | facts))


OWN = (_dp_app("own clipping", "own-clipping"), _dp_app("Adam after an honest mean", "own-adam"))
"""Strategies of somebody's own."""

OPACUS = PLD.epsilon(Mechanism.alike(1.5, 2 * 10, 1 / 10), DELTA)
"""Of a record under the app's defaults: two rounds of an epoch of ten batches."""

UNIFORM = _dp_app("Flower's clipping and noise", "uniform")
AT_CLIENTS = _dp_app("Flower's noise, clients clip", "client-fixed")

RECORDED = (
    UNIFORM,
    AT_CLIENTS,
    *OWN,
    App("Opacus in the clients", "opacus_app", epsilon=OPACUS),
    App("Opacus in the clients, a claim of records", "opacus_app", {}, OPACUS, "record"),
)
"""Apps whose server is recorded."""

AUDITED = (
    UNIFORM,
    AT_CLIENTS,
    _dp_app("RdpAccountant", "accountant-kept", epsilon=None),
    *OWN,
    App("Opacus in the clients", "opacus_app", epsilon=OPACUS),
)
"""Apps that are run again and again, with updates written for them."""


@dataclass(frozen=True)
class Said:
    """What an audit said of a run: what it accused it of, and its verdict on a claim, if any.

    chances: how many of its checks chance could fail, None where the audit does not count them
    """

    wrong: list[str]
    chances: int | None = None
    verdict: Verdict | None = None

    @property
    def accusations(self) -> list[str]:
        """What was wrong, and a verdict against the run."""
        against = self.verdict in (Verdict.SUSPECT, Verdict.CONVICTED)
        return [*self.wrong, *([f"verdict: {self.verdict}"] if against else [])]


@dataclass(frozen=True)
class Kind:
    """A kind of audit: what it says of a seed's run, and of how many seeds it is asked."""

    name: str
    said: Callable[[int], Said]
    repeats: int = REPEATS


def measure(smoke: bool, data_root: Path | None) -> Iterator[Table]:
    """Yield for every kind of audit how many honest runs it accused, and of what."""
    del data_root  # scikit-learn brings the data
    rows, runs, accused = [], 0, 0
    for kind in kinds():
        repeats = 1 if smoke else kind.repeats
        found = [kind.said(FIRST_SEED + seed) for seed in range(repeats)]
        wrong = sum(bool(said.accusations) for said in found)
        verdicts = _listed(said.verdict for said in found if said.verdict)
        chances = max((said.chances for said in found if said.chances is not None), default=None)
        of_what = _listed(name for said in found for name in said.accusations)
        rows.append((kind.name, repeats, wrong, verdicts, chances, of_what or "none"))
        runs, accused = runs + repeats, accused + wrong
    limits = clopper_pearson(accused, runs, 0.95)
    yield Table(
        f"Honest runs: {accused} of {runs} accused",
        ("audit", "runs", "accused", "the claim is", "checks that chance could fail", "of what"),
        rows,
        f"{TRIALS} trials of {ROUNDS} rounds, of apps {APP_TRIALS}; seeds from {FIRST_SEED} on. "
        f"The share accused is {100 * limits.low:.2g} to {100 * limits.high:.2g} %, at 95 % "
        "confidence.",
    )


def _listed(names: Iterable[str]) -> str | None:
    return ", ".join(sorted(set(names))) or None


def kinds() -> Iterator[Kind]:
    """Yield every kind of audit: of runs, live, of membership, of transcripts and of apps."""
    for variant in (*CORRECT, *MORE):
        yield Kind(variant.name, lambda seed, variant=variant: _of_run(variant, seed))
    yield Kind("an auditor's node, of one training", _of_live)
    yield Kind("membership inference", _of_membership)
    for privacy in FLOWERS:
        yield Kind(
            f"transcripts of Flower's own app, noise by {privacy}",
            lambda seed, privacy=privacy: _of_transcripts(privacy, seed),
        )
    for app in RECORDED:
        yield Kind(f"recorded: {app.name}", lambda seed, app=app: _of_recorded(app, seed))
    for app in AUDITED:
        said = lambda seed, app=app: _of_app(app, seed)  # noqa: E731
        yield Kind(f"app: {app.name}", said, APP_REPEATS)


def _of_run(variant: Variant, seed: int) -> Said:
    with tempfile.TemporaryDirectory() as folder:
        report = play(variant, Path(folder) / "run", TRIALS, ROUNDS, seed=seed).report
    alarms = [each["rule"] for each in report["findings"] if each["severity"] == "alarm"]
    return Said(alarms, report["details"]["chance_alarms"])


def _of_live(seed: int) -> Said:
    sizes: Changes = {"trials.count": 1, "training.rounds": ROUNDS, "run.seed": seed}
    # Noise that whoever knows the seed can remove supports no claim.
    config = from_run_config(BASE | sizes | {"privacy.noise-source": "system"})
    run_config, audit = to_run_config(config), LiveAudit()
    with tempfile.TemporaryDirectory() as folder, patch.object(page.Pictures, "drawn", {}):
        run = RunDirectory.create(Path(folder) / "run", config)
        grid = InProcessGrid(client_app.app, config.federation.clients, run_config)
        told: Changes = {"role": "auditor", "transcript-path": folder}
        grid.contexts[AUDITOR] = Context(RUN_ID, AUDITOR, told, RecordDict(), run_config)
        server_app.carry_out(grid, preflight(config), run)
        recorded = read_transcript(Path(folder) / f"{RUN_ID}.fedt")
    for each in recorded.rounds:
        audit.observe(each)
    delta = config.privacy.delta
    claim = Claim(PLD.epsilon(audit.everything(), delta), delta, "the truth")
    report = live_report.assemble(audit, recorded.facts, 0.95, claim, recorded.ended)
    return Said(_alarms(report), verdict=report.verdict)


def _of_membership(seed: int) -> Said:
    changes: Changes = {"run.seed": seed, "training.rounds": ROUNDS}
    config = from_run_config(BASE | changes | {"audit.attacks": "yeom-mean,lira"})
    attacks = membership_attacks.chosen(config.audit.attacks)
    game = membership_game.play(config, MODELS)
    return Said(
        membership_report.assemble(config, config.audit.confidence, game, attacks, 0.0).alarms, 1
    )


def _of_transcripts(privacy: str, seed: int) -> Said:
    with tempfile.TemporaryDirectory() as folder:
        changes: Changes = {"privacy": privacy, "seed": seed, "transcripts": folder}
        _play_app("quickstart", changes, seed)
        reports = [
            transcript_audit.audit(read_transcript(path)) for path in Path(folder).glob("*.fedt")
        ]
    return Said([alarm for report in reports for alarm in _alarms(report)])


def _of_recorded(app: App, seed: int) -> Said:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.fedt"
        _play_app(app.folder, app.changes | {"transcript": str(path)}, seed)
        claim = None if app.epsilon is None else Claim(app.epsilon, DELTA, unit=app.unit)
        delta = DELTA if claim is None else None
        report = transcript_audit.audit(
            read_transcript(path), AuditOptions(claim=claim, delta=delta)
        )
    return Said(_alarms(report), verdict=report.verdict)


def _of_app(app: App, seed: int) -> Said:
    claim = None
    if app.epsilon is not None:
        claim = Claim(app.epsilon, DELTA, "the truth", unit=app.unit)
    with opened(APPS / app.folder, CLIENTS, app.changes) as lent:
        found = audit_app(lent, trials=APP_TRIALS, seed=seed, claim=claim)
    broken = [finding.rule for finding in found.findings if finding.breaks]
    return Said(broken, verdict=found.verdict)


def _alarms(report: AuditReport[Any]) -> list[str]:
    return [one.why[:60] for one in report.findings if one.breaks]


def _play_app(folder: str, changes: Changes, seed: int) -> None:
    """Run a Flower app once."""

    def train(message: Message, context: Context, call_next: Any) -> Message:
        return call_next(message, context)  # type: ignore[no-any-return]

    with loaded(APPS / folder, changes, train) as app:
        set_seeds(seed)
        grid = InProcessGrid(app.client_app, CLIENTS, app.run_config)
        app.server_app(grid, next(iter(grid.contexts.values())))
