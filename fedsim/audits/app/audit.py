"""The audit of a Flower app: its claim, what theory says about it, and what an attack proves.

The two worlds differ in one client's update. Add-remove: in the other world that client sends no
change, but keeps its place in the round ("zero-out" neighbours; Kairouz et al., "Practical and
private deep learning without sampling or shuffling", 2021, Definition 1.1). Flower divides by the
number of replies, so that a client that stays away would also change the divisor. With zero-out
neighbours, Flower's own calibration C / n is right. Replace: the client sends any other update.
Client sampling amplifies nothing here: Flower samples a fixed number, and the server knows which.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import fedsim
from adversaries.arrays import Bools, Floats
from adversaries.bounds import lower_bounds
from adversaries.errors import InputError
from adversaries.statistics import estimators, gaussian
from adversaries.statistics.intervals import EpsilonBound
from fedsim.audits.app import game, loading, records
from fedsim.audits.app.execution import AppFacts, AuditedApp
from fedsim.audits.app.game import Observed
from fedsim.audits.child_process.channel import Log, started
from fedsim.audits.judgement.claim import Claim, Evidence, Finding
from fedsim.audits.judgement.options import check_numbers
from fedsim.audits.judgement.report import AuditReport, concluded
from fedsim.audits.recorded.releases import JUDGED
from fedsim.audits.results.conditions import APP
from fedsim.audits.results.measured import Decisions, Predicted
from fedsim.audits.results.rows import View
from fedsim.audits.steps.theory import Composition, MeasuredNoise
from fedsim.configuration import Scalar
from fedsim.privacy.delta import ASSUMED
from fedsim.privacy.mechanism import Neighbouring, sensitivity
from fedsim.privacy.trust import Vantage

BOUNDS = ("clopper_pearson", "gaussian")
OF_A_RECORD = (
    "the claim is about a record. This audit changes a client's whole update, and does not measure "
    "how training treats one record"
)
UNIT_MISSING = (
    "The claim does not state what it protects; give --claimed-unit client (a client's update, as "
    "its training returns it) or --claimed-unit record (one record of a client)."
)
BELOW_CLAIM = "all rounds have epsilon {:.4g} at delta {:g}, above the claimed {:.4g}"
NOT_NORMAL = "the noise is not known to be Flower's own, of one size in all trials"

ROUNDS_KEY = "num-server-rounds"
TRIALS = 300


@dataclass(frozen=True, kw_only=True)
class AppDetails:
    """What the audit of an app alone has."""

    neighbouring: Neighbouring
    clients: int
    facts: AppFacts
    decisions: Decisions | None
    records: Mapping[str, int] | None
    """Clients with steps of Opacus, and the most steps of one; None for a claim about a client."""
    noise: MeasuredNoise | None


AppReport = AuditReport[AppDetails]


def audit(
    audited: AuditedApp,
    *,
    trials: int,
    seed: int,
    claim: Claim | None = None,
    neighbouring: Neighbouring = Neighbouring.ADD_REMOVE,
    confidence: float = 0.95,
    progress: Callable[[int], None] = lambda done: None,
) -> AppReport:
    check_numbers(trials, confidence, seed)
    seen = game.observe(audited, seed)
    if claim is None and seen.facts.statement is not None:
        source = "the app's accountant, at the end of the run"
        claim = seen.facts.statement.claim(source, "client", Vantage.PARTICIPANT)
    delta, of_record = ASSUMED if claim is None else claim.delta, None
    if claim is not None and claim.unit == "record":
        rounds = seen.facts.rounds
        of_record = records.judged(seen.trainings, rounds, neighbouring, delta, confidence)
    findings, decisions = game.findings(seen, claim), None
    if of_record is not None:
        view, evidence = of_record.view, of_record.evidence
        findings = (*findings, *of_record.findings)
    else:
        played = game.play(audited, seen.facts, neighbouring, trials, seed, progress)
        theory = ClientTheory(seen, findings, neighbouring)
        bounds = partial(_bounds, *played, delta, theory.normal)
        view, evidence = _view(theory, delta, *played, bounds), client_evidence(theory, claim)
        found = estimators.advantage(*played, confidence)
        decisions = Decisions.of(found, trials, seed, bounds(confidence))
    return concluded(
        [view],
        evidence,
        kind=APP,
        name=audited.name,
        unit="client" if of_record is None else "record",
        claim=claim,
        findings=findings,
        delta=delta,
        confidence=confidence,
        details=AppDetails(
            neighbouring=neighbouring,
            clients=audited.clients,
            facts=seen.facts,
            decisions=decisions,
            records=None if of_record is None else of_record.counts,
            noise=None if of_record is None else of_record.noise,
        ),
        versions={"fedsim": fedsim.__version__, "flwr": version("flwr")},
    )


@dataclass(frozen=True)
class ClientTheory:
    """What theory says about one client's update."""

    seen: Observed
    findings: Sequence[Finding]
    neighbouring: Neighbouring

    @property
    def broken(self) -> bool:
        """Whether an alarm leaves nothing of the guarantee."""
        return any(each.breaks and each.rule not in game.COUNTED for each in self.findings)

    @property
    def normal(self) -> bool:
        """Whether the scores of the attack are normal, of one variance in both worlds."""
        wrong = {each.rule for each in self.findings if each.breaks}
        facts, own = self.seen.facts, wrong & {"realised-noise", ""}
        return facts.normal and not (facts.seeded or self.seen.added or own)

    @property
    def mu(self) -> float | None:
        """Distance of the worlds, in standard deviations of the noise; None if it is not known."""
        facts = self.seen.facts
        if self.seen.unprotected:
            return math.inf
        if self.broken or not facts.multipliers:
            return None
        squares = sum(z**-2 if z else math.inf for z in facts.multipliers)
        return sensitivity(self.neighbouring, 1.0) * math.sqrt(squares)


def client_evidence(theory: ClientTheory, claim: Claim | None) -> Evidence:
    """Return what speaks for and against a claim about a client's update."""
    facts, against = theory.seen.facts, list[str]()
    if claim is not None and theory.mu is not None:
        epsilon = gaussian.epsilon(theory.mu, claim.delta)
        text = BELOW_CLAIM.format(epsilon, claim.delta, claim.epsilon)
        against += [] if claim.allows(epsilon) else [text]
    unknown = facts.unknown or JUDGED.format(facts.strategies)
    return Evidence(
        incomparable=OF_A_RECORD if claim is not None and claim.unit == "record" else "",
        broken=theory.broken,
        unknown=[unknown] if theory.mu is None else [],
        unsure=facts.doubts,
        against=against,
    )


def _view(
    theory: ClientTheory,
    delta: float,
    worlds: Bools,
    scores: Floats,
    bounds: Callable[[float], Mapping[str, EpsilonBound]],
) -> View:
    mu, limit, predicted = theory.mu, None, None
    if mu is not None:
        limit = Composition(mu=mu).limit(delta, "theory")
        predicted = Predicted(None, limit.rho_alpha, None, "closed form")
    return View(
        observer=Vantage.PARTICIPANT.value,
        limit=limit,
        worlds=worlds,
        scores=scores,
        trials=len(worlds),
        bounds=lambda level: {name: each.epsilon for name, each in bounds(level).items()},
        detects=theory.seen.facts.detects,
        predicted=predicted,
    )


def _bounds(
    worlds: Bools, scores: Floats, delta: float, normal: bool, level: float
) -> dict[str, EpsilonBound]:
    """Return the lower bounds that judge a claim; together they hold with confidence `level`."""
    kinds = lower_bounds.MechanismKind
    kind, reason = (kinds.GAUSSIAN, None) if normal else (kinds.OTHER, NOT_NORMAL)
    each = (1 + level) / 2
    return lower_bounds.lower_bounds(worlds, scores, delta, each, kind, reason, names=BOUNDS)


def audit_directory(
    app: Path,
    *,
    trials: int = TRIALS,
    rounds: int | None = None,
    clients: int = 5,
    run_config: Mapping[str, Scalar] | None = None,
    claim: Claim | None = None,
    neighbouring: Neighbouring = Neighbouring.ADD_REMOVE,
    confidence: float = 0.95,
    seed: int = 0,
    time_limit: float = 3600.0,
    log: Log = None,
    progress: Callable[[int], None] = lambda done: None,
) -> AppReport:
    """Return the audit of the app in a directory.

    The app's code runs in its own process, with the user's rights.
    """
    if clients < 2:
        raise InputError(f"--clients is {clients}; a federation needs at least 2")
    check_numbers(trials, confidence, seed, time_limit)
    if claim is not None and claim.unit is None:
        raise InputError(UNIT_MISSING)
    overrides = dict(run_config or {})
    if rounds is not None:
        overrides[ROUNDS_KEY] = rounds
    count = overrides.get(ROUNDS_KEY, 1)
    if isinstance(count, int | float) and count < 1:
        raise InputError(
            f"{ROUNDS_KEY} is {count}, so that the app would release nothing; give at least 1"
        )
    loading.described(app.expanduser().resolve())  # before a process takes seconds to start
    module, order = "fedsim.audits.app.execution", (app, clients, overrides)
    with started(module, "app", time_limit, *order, log=log) as channel:
        return audit(
            channel.served(AuditedApp),
            trials=trials,
            seed=seed,
            claim=claim,
            neighbouring=neighbouring,
            confidence=confidence,
            progress=progress,
        )
