"""The audit of a Flower app: its claim, what theory says about it, and what an attack proves."""

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
from adversaries.statistics.intervals import ALARM_CONFIDENCE, EpsilonBound, significance
from fedsim.audits.app import game, loading, records, theory
from fedsim.audits.app.configuration import BY_LOCAL, App, Configuration, claim_of
from fedsim.audits.app.theory import AppGuarantee
from fedsim.audits.child_process.channel import Log, started
from fedsim.audits.judgement.claim import Claim, Evidence, Finding
from fedsim.audits.judgement.options import check_numbers
from fedsim.audits.judgement.report import AuditReport, concluded
from fedsim.audits.loop.findings import NoiseFacts
from fedsim.audits.results.conditions import APP
from fedsim.audits.results.measured import Decisions
from fedsim.audits.results.rows import Limit, Row, Source
from fedsim.audits.results.theory import Predicted
from fedsim.audits.results.view import View
from fedsim.audits.run import detectable
from fedsim.configuration import Scalar
from fedsim.privacy.delta import ASSUMED
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.trust import Vantage

BOUNDS = ("clopper_pearson", "gaussian")


UNKNOWN = (
    "theory does not know what {} adds to the aggregate of the updates, and the attack disproved "
    "nothing. Theory covers Flower's DP wrappers with fixed clipping around FedAvg"
)
"""Why a claim is not judged where only an attack looked at it."""

OF_A_RECORD = (
    "the claim is about a record. This audit changes a client's whole update, and does not measure "
    "how training treats one record"
)
UNIT_MISSING = (
    "The claim does not state what it protects; give --claimed-unit client (a client's update, as "
    "its training returns it) or --claimed-unit record (one record of a client)."
)

OWN_NOISE = (
    "the app's own code makes the noise of {}. The same amount of noise from Flower's code would "
    "be enough, and the attack disproved nothing. But an audit cannot tell independent Gaussian "
    "noise on every parameter from other noise that measures the same. Let Flower's own code add "
    "the noise"
)
"""Why a claim is not judged that theory supports only if the app's own noise is Gaussian."""

ROUNDS_KEY = "num-server-rounds"
TRIALS = 300


@dataclass(frozen=True, kw_only=True)
class AppDetails:
    """What the audit of an app alone has."""

    neighbouring: Neighbouring
    clients: int
    configuration: Configuration
    decisions: Decisions | None
    records: Mapping[str, int] | None
    """Clients with steps of Opacus, and the most steps of one; None for a claim about a client."""
    noise: NoiseFacts | None


AppReport = AuditReport[AppDetails]


def audit(
    audited: App,
    *,
    trials: int,
    seed: int,
    claim: Claim | None = None,
    neighbouring: Neighbouring = Neighbouring.ADD_REMOVE,
    confidence: float = 0.95,
    progress: Callable[[int], None] = lambda done: None,
) -> AppReport:
    check_numbers(trials, confidence, seed)
    configuration, trainings = game.observe(audited, seed)
    claim = claim or claim_of(configuration)
    delta, of_record = ASSUMED if claim is None else claim.delta, None
    if claim is not None and claim.unit == "record":
        rounds = configuration.rounds
        of_record = records.judged(trainings, rounds, neighbouring, delta, confidence)
    findings, decisions = theory.findings(configuration, neighbouring, claim), None
    if of_record is not None:
        view, evidence = of_record.view(delta), of_record.evidence
        findings = (*findings, *of_record.findings)
    else:
        vantage = theory.vantage_of(configuration, claim)
        guarantee = theory.guarantee(configuration, neighbouring, vantage)
        played = game.play(
            audited, configuration, guarantee, neighbouring, vantage, trials, seed, progress
        )
        view = _view(configuration, guarantee, vantage, claim, delta, *played)
        found = estimators.advantage(*played, confidence)
        bounds = _bounds(*played, delta, _not_normal(configuration, guarantee), confidence)
        decisions = Decisions.of(found, trials, seed, bounds)
        evidence = partial(client_evidence, configuration, findings)
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
            configuration=configuration,
            decisions=decisions,
            records=None if of_record is None else of_record.counts,
            noise=of_record.noise.facts if of_record and of_record.noise else None,
        ),
        versions={"fedsim": fedsim.__version__, "flwr": version("flwr")},
    )


def client_evidence(
    configuration: Configuration, findings: Sequence[Finding], claim: Claim, row: Row
) -> Evidence:
    """Return what speaks for and against a claim about a client's update."""
    strategies, released = " > ".join(configuration.strategies), row.observer == "participant"
    central = configuration.central if released else None
    unsure = [OWN_NOISE.format(strategies)] if central and central.own_noise else []
    # LocalDpMod claims what a message with its noise does not have.
    local = claim.source == BY_LOCAL and any(each.rule == "local-noise" for each in findings)
    # The checks with a rule are those that theory's epsilon counts.
    unruled = released and any(each.breaks and not each.rule for each in configuration.checks)
    return Evidence(
        incomparable=OF_A_RECORD if claim.unit == "record" else "",
        broken=unruled or local or (central is not None and central.varies),
        unknown=[UNKNOWN.format(strategies)] if row.epsilon is None else [],
        exceeded=row.epsilon is not None and not claim.allows(row.epsilon),
        unsure=[configuration.unsure] if released and configuration.unsure else unsure,
    )


def _view(
    configuration: Configuration,
    guarantee: AppGuarantee | None,
    vantage: Vantage,
    claim: Claim | None,
    delta: float,
    worlds: Bools,
    scores: Floats,
) -> View:
    reason, predicted = _not_normal(configuration, guarantee), _predicted(configuration, guarantee)
    shares = theory.realised_shares(configuration)
    off = vantage is Vantage.PARTICIPANT and {*shares} != {1.0}
    source: Source = "measured" if off else "theory"

    def bounds(level: float) -> Mapping[str, float]:
        found = _bounds(worlds, scores, delta, reason, level)
        return {name: bound.epsilon for name, bound in found.items()}

    return View(
        observer=vantage.value,
        limit=None if guarantee is None else Limit.of_curve(guarantee.epsilon, delta, source),
        worlds=worlds,
        scores=scores,
        trials=len(worlds),
        bounds=bounds,
        detects=_detects(configuration, guarantee, vantage, claim, worlds),
        predicted=None if predicted is None else Predicted(None, predicted, None, "closed form"),
    )


def _predicted(configuration: Configuration, guarantee: AppGuarantee | None) -> float | None:
    """Return the advantage that theory predicts for the attack; None where it cannot tell."""
    participant = guarantee is not None and guarantee.vantage is Vantage.PARTICIPANT
    # With both noises, clipping changes the clients' noise, but the attack models one noise alone.
    if guarantee is None or (participant and configuration.local is not None):
        return None
    return gaussian.advantage(guarantee.mu)


def _bounds(
    worlds: Bools, scores: Floats, delta: float, reason: str | None, level: float
) -> dict[str, EpsilonBound]:
    """Return the lower bounds that judge a claim; together they hold with confidence `level`."""
    kinds = lower_bounds.MechanismKind
    kind = kinds.OTHER if reason else kinds.GAUSSIAN
    each = (1 + level) / 2
    return lower_bounds.lower_bounds(worlds, scores, delta, each, kind, reason, names=BOUNDS)


def _not_normal(configuration: Configuration, guarantee: AppGuarantee | None) -> str | None:
    """Return why the scores are not normal; None where they are."""
    central = configuration.central
    shares = theory.realised_shares(configuration)
    if guarantee is None:
        return "the noise of the strategy is unknown"
    if guarantee.vantage is Vantage.PARTICIPANT and configuration.local is not None:
        return "the server's aggregation changes the clients' own noise"
    if 0 in guarantee.multipliers:
        return "there is no noise"
    if (central is not None and central.own_noise) or {*shares} != {1.0}:
        return "the noise is not the configured one of every round, or the app's own code makes it"
    return None


def _detects(
    configuration: Configuration,
    guarantee: AppGuarantee | None,
    vantage: Vantage,
    claim: Claim | None,
    worlds: Bools,
) -> list[float]:
    """Return the shares of the noise below which a check would have raised an alarm.

    By the noise of one round of the honest run, and by the Gaussian bound of the attack, one of two
    that judge together.
    """
    shares, error = list[float](), significance(ALARM_CONFIDENCE)
    measured = vantage is Vantage.PARTICIPANT and not configuration.seeded
    if measured and configuration.noise_ratios:
        tail = error / 2 / len(configuration.noise_ratios)
        shares.append(detectable.by_energy(configuration.noise_coordinates, tail))
    normal = guarantee is not None and _not_normal(configuration, guarantee) is None
    if normal and guarantee is not None and claim is not None and claim.epsilon > 0:
        limit = gaussian.mu_of_epsilon(claim.epsilon, claim.delta)
        with_update = int(worlds.sum())
        counts = with_update, worlds.size - with_update
        shares.append(detectable.by_separation(guarantee.mu, limit, *counts, error / 2))
    return shares


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
            channel.served(App),
            trials=trials,
            seed=seed,
            claim=claim,
            neighbouring=neighbouring,
            confidence=confidence,
            progress=progress,
        )
