"""The audit of a Flower app: its claim, what theory says about it, and what an attack proves."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

import fedsim
from adversaries.arrays import Bools, Floats
from adversaries.bounds import lower_bounds
from adversaries.errors import InputError
from adversaries.statistics import estimators, gaussian
from adversaries.statistics.intervals import ALARM_CONFIDENCE, EpsilonBound, significance
from fedsim.audits.app import game, loading, records, theory
from fedsim.audits.app.configuration import (
    BY_LOCAL,
    App,
    AppObservation,
    CentralNoise,
    Configuration,
    claim_of,
)
from fedsim.audits.app.records import RecordAudit
from fedsim.audits.app.theory import AppGuarantee
from fedsim.audits.child_process.channel import Log, started
from fedsim.audits.judgement.claim import Claim, Evidence, Judgement, judge
from fedsim.audits.judgement.options import check_numbers
from fedsim.audits.judgement.report import Decisions, Judged, largest
from fedsim.audits.loop.findings import MeasuredNoise
from fedsim.audits.results.rows import Row
from fedsim.audits.results.theory import Predicted
from fedsim.audits.run import detectable
from fedsim.configuration import Scalar
from fedsim.privacy.delta import ASSUMED
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.trust.model import Vantage

BOUNDS = ("clopper_pearson", "gaussian")


UNKNOWN = (
    "theory does not know what {} adds to the aggregate of the updates, and the attack disproved "
    "nothing. Theory covers Flower's own DP wrappers around FedAvg"
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
    noise: MeasuredNoise | None


@dataclass(frozen=True, kw_only=True)
class AppAudit(Judged):
    """The outcome of the audit of an app.

    Attributes:
        records: protection of one record, where the claim is about one and clients use Opacus. No
            attack is made on a record.
    """

    kind = "app audit"

    app: str
    configuration: Configuration
    guarantee: AppGuarantee | None
    vantage: Vantage
    neighbouring: Neighbouring
    predicted_advantage: float | None
    clients: int
    seen_below: float
    records: RecordAudit | None = None

    @property
    def noise_off(self) -> bool:
        """Whether epsilon uses the measured noise, because it differs from the configured noise."""
        observation, central = self.configuration.observation, self.vantage is Vantage.PARTICIPANT
        shares = theory.realised_shares(observation, self.configuration.rounds)
        return central and self.epsilon is not None and {*shares} != {1.0}

    @property
    def judgement(self) -> Judgement:
        strategies, claim = " > ".join(self.configuration.strategies), self.claim
        if claim is not None and self.records is not None:
            return judge(claim, self.records.evidence(claim))
        central, run = self._released
        unsure = [OWN_NOISE.format(strategies)] if central and central.own_noise else []
        # The checks with a rule are those that theory's epsilon counts.
        broken = run is not None and any(each.breaks and not each.rule for each in run.checks)
        evidence = Evidence(
            incomparable=OF_A_RECORD if claim is not None and claim.unit == "record" else "",
            refuted=claim is not None and self.proven.epsilon > claim.epsilon,
            broken=broken or self._local_noise or (central is not None and central.varies),
            unknown=[UNKNOWN.format(strategies)] if self.epsilon is None else [],
            exceeded=not self.allowed,
            unsure=[run.unsure] if run is not None and run.unsure else unsure,
        )
        return judge(claim, evidence)

    @property
    def _local_noise(self) -> bool:
        """Whether LocalDpMod claims what a message with its noise does not have."""
        by_local = self.claim is not None and self.claim.source == BY_LOCAL
        return by_local and any(each.rule == "local-noise" for each in self.objections)

    @property
    def _released(self) -> tuple[CentralNoise | None, AppObservation | None]:
        """The server's noise and rounds, where the claim is about released models."""
        if self.vantage is not Vantage.PARTICIPANT:
            return None, None
        return self.configuration.central, self.configuration.observation

    @property
    def name(self) -> str:
        return self.app

    @property
    def unit(self) -> str:
        return "client" if self.records is None else "record"

    @property
    def versions(self) -> Mapping[str, str]:
        return {"fedsim": fedsim.__version__, "flwr": version("flwr")}

    @property
    def unjudged(self) -> Sequence[Row]:
        records, predicted = self.records, self.predicted_advantage
        return self.observed(
            "measured" if self.noise_off else "theory",
            self.attack if records is None else None,
            None if records is None or records.noise is None else records.noise.ratio,
            self.seen_below,
            "" if records is None else "no attack was made on a record",
            None if predicted is None else Predicted(None, predicted, None, "closed form"),
        )

    @property
    def details(self) -> AppDetails:
        seen = self.records
        return AppDetails(
            neighbouring=self.neighbouring,
            clients=self.clients,
            configuration=self.configuration,
            decisions=self.decisions if seen is None else None,
            records=None if seen is None else {"clients": seen.clients, "steps": seen.steps},
            noise=None if seen is None else seen.noise,
        )


def audit(
    audited: App,
    *,
    trials: int,
    seed: int,
    claim: Claim | None = None,
    neighbouring: Neighbouring = Neighbouring.ADD_REMOVE,
    confidence: float = 0.95,
    progress: Callable[[int], None] = lambda done: None,
) -> AppAudit:
    check_numbers(trials, confidence, seed)
    configuration, trainings = game.observe(audited, seed)
    claim = claim or claim_of(configuration)
    delta = ASSUMED if claim is None else claim.delta
    vantage, of_record = theory.vantage_of(configuration, claim), None
    if claim is not None and claim.unit == "record":
        rounds = configuration.rounds
        of_record = records.judged(trainings, rounds, neighbouring, delta, confidence)
    if of_record is None:
        guarantee = theory.guarantee(configuration, neighbouring, vantage)
        worlds, scores = game.play(
            audited, configuration, guarantee, neighbouring, vantage, trials, seed, progress
        )
        epsilon = None if guarantee is None else guarantee.epsilon(delta)
        seen_below = _seen_below(configuration, guarantee, vantage, claim, worlds)
    else:  # towards the server, and without an attack
        guarantee, vantage, epsilon = None, Vantage.SERVER, of_record.epsilon
        worlds, scores = np.arange(trials) % 2 == 0, np.zeros(trials)
        seen_below = 0.0 if of_record.noise is None else of_record.noise.seen_below
    reason = _not_normal(configuration, guarantee)
    stated, sure = (
        _bounds(worlds, scores, delta, reason, each) for each in (confidence, ALARM_CONFIDENCE)
    )
    objections = theory.findings(configuration, neighbouring, claim)
    return AppAudit(
        app=audited.name,
        configuration=configuration,
        claim=claim,
        guarantee=guarantee,
        vantage=vantage,
        neighbouring=neighbouring,
        delta=delta,
        epsilon=epsilon,
        predicted_advantage=_predicted(configuration, guarantee),
        advantage=estimators.advantage(worlds, scores, confidence),
        lower_bounds=stated,
        proven=largest(sure),
        confidence=confidence,
        objections=(*objections, *(of_record.findings if of_record else ())),
        trials=trials if of_record is None else 0,
        clients=audited.clients,
        seed=seed,
        seen_below=seen_below,
        records=of_record,
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
    central, observation = configuration.central, configuration.observation
    shares = theory.realised_shares(observation, configuration.rounds)
    if guarantee is None:
        return "the noise of the strategy is unknown"
    if guarantee.vantage is Vantage.PARTICIPANT and configuration.local is not None:
        return "the server's aggregation changes the clients' own noise"
    if 0 in guarantee.on_models:
        return "there is no noise"
    if central is not None and central.adaptive:
        return "with adaptive clipping, the scale of the noise depends on the updates"
    if (central is not None and central.own_noise) or {*shares} != {1.0}:
        return "the noise is not the configured one of every round, or the app's own code makes it"
    return None


def _seen_below(
    configuration: Configuration,
    guarantee: AppGuarantee | None,
    vantage: Vantage,
    claim: Claim | None,
    worlds: Bools,
) -> float:
    """Return the share of the noise below which the audit would have raised an alarm.

    By the noise of one round of the honest run, or by the Gaussian bound of the attack, one of two
    that judge together.
    """
    run, shares, error = configuration.observation, [0.0], significance(ALARM_CONFIDENCE)
    if vantage is Vantage.PARTICIPANT and run and run.noise_ratios and not run.seeded:
        tail = error / 2 / len(run.noise_ratios)
        shares.append(detectable.by_energy(run.noise_coordinates, tail))
    normal = guarantee is not None and _not_normal(configuration, guarantee) is None
    if normal and guarantee is not None and claim is not None and claim.epsilon > 0:
        limit = gaussian.mu_of_epsilon(claim.epsilon, claim.delta)
        with_update = int(worlds.sum())
        counts = with_update, worlds.size - with_update
        shares.append(detectable.by_separation(guarantee.mu, limit, *counts, error / 2))
    return max(shares)


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
) -> AppAudit:
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
