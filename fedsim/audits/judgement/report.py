"""The options of an audit, and its report as the gate and the Python API read every kind."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, Protocol

from adversaries.errors import InputError
from adversaries.statistics.estimators import AdvantageEstimate
from adversaries.statistics.intervals import (
    ALARM_CONFIDENCE,
    EpsilonBound,
    check_positive_delta,
    significance,
)
from fedsim.audits.judgement.claim import Claim, Finding, JudgedClaim, Judgement, Verdict, alarms
from fedsim.common.strict_json import strict_json
from fedsim.privacy.delta import ASSUMED
from fedsim.privacy.mechanism import Neighbouring

CONFIDENCE = 0.95
CODE = ("trials", "neighbouring", "seed", "time_limit")
TAKEN: Mapping[str, tuple[str, ...]] = {
    "a Flower app": (*CODE, "rounds", "clients", "run_config"),
    "a training loop": (*CODE, "data", "records", "target", "workers"),
    "a recorded transcript": ("delta", "rounds"),
    "an auditor's transcript": (
        *("data_root", "weights", "canary_seed_file", "no_challenge", "worlds"),
    ),
}


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """Options of an audit; None for an option that the user left out.

    Attributes:
        delta: at which epsilons are stated; for a recorded transcript without a claim.
        trials: number of attacked runs of an app, or of judged runs of a loop.
        time_limit: seconds allowed for one run of an app, or for up to 25 runs of a loop.
        rounds: num-server-rounds of an app; all rounds of a recorded participant.
        clients: number of clients of an app.
        run_config: keys of an app's run configuration that change.
        data: data that a loop trains on.
        records: number of records in D, for a loop.
        target: target of a loop, "crafted" or "real".
        workers: number of processes that run a loop.
        data_root: directory of the run's dataset on this machine, for an auditor's transcript.
        weights: this machine's copy of the run's model.weights, for an auditor's transcript.
        canary_seed_file: seeds and numbers of the clients' canaries, for an auditor's transcript.
        no_challenge: whether to leave out beliefs about the challenge, which need the data.
        worlds: run directory that says which beliefs were right, for an auditor's transcript.
    """

    claim: Claim | None = None
    delta: float | None = None
    confidence: float | None = None
    trials: int | None = None
    neighbouring: Neighbouring | None = None
    seed: int | None = None
    time_limit: float | None = None
    rounds: int | None = None
    clients: int | None = None
    run_config: Mapping[str, Any] | None = None
    data: str | None = None
    records: int | None = None
    target: str | None = None
    workers: int | None = None
    data_root: Path | None = None
    weights: Path | None = None
    canary_seed_file: Path | None = None
    no_challenge: bool | None = None
    worlds: Path | None = None

    def __post_init__(self) -> None:
        if self.claim is not None and self.delta is not None:
            raise InputError("A claim states its own delta; leave delta out.")
        if self.delta is not None:
            check_positive_delta(self.delta)
        significance(self.level)

    @property
    def level(self) -> float:
        return CONFIDENCE if self.confidence is None else self.confidence

    @property
    def stated_at(self) -> float:
        if self.claim is not None:
            return self.claim.delta
        return ASSUMED if self.delta is None else self.delta

    def taken(self, audited: str) -> dict[str, Any]:
        """Return the options that the user set and only this audit takes, by name."""
        own = {name for names in TAKEN.values() for name in names}
        chosen = {
            name: value
            for name, value in vars(self).items()
            if name in own and value is not None and value is not False
        }
        if wrong := [name for name in chosen if name not in TAKEN[audited]]:
            takers = " or ".join(kind for kind, names in TAKEN.items() if wrong[0] in names)
            option = wrong[0].replace("_", "-")
            raise InputError(f"{option} is only for {takers}; this is {audited}, so leave it out")
        return chosen


class Documented(Protocol):
    """The report of one kind of audit, with its findings and its form for JSON."""

    @property
    def findings(self) -> Sequence[Finding]: ...
    def as_json(self) -> dict[str, Any]: ...


class OfTranscript(Documented, Protocol):
    """The report of a transcript, a recorder's or an auditor's."""

    @property
    def claim(self) -> JudgedClaim | None: ...
    @property
    def epsilon(self) -> float | None: ...
    @property
    def proven(self) -> float | None: ...
    @property
    def delta(self) -> float | None: ...


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """The conclusion of an audit of a federation or a training loop.

    Attributes:
        reasons: why the claim is not judged, or the evidence against it.
        epsilon: epsilon of the least protected client or record at delta. Measured in a recorded
            transcript, configured in an app or a loop, stated by the server to an auditor's node.
            Infinite without noise, None where unknown.
        proven: lower bound on epsilon, at the confidence of a conviction; None where unmeasured.
        delta: at which both are stated; None where an auditor's node has seen no round.
        of: the whole report, typed.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    epsilon: float | None
    proven: float | None
    delta: float | None
    of: Documented = field(repr=False)

    @cached_property
    def report(self) -> Mapping[str, Any]:
        """JSON of `fedsim audit … --json`, but with infinite floats for a transcript."""
        return self.of.as_json()

    def _repr_html_(self) -> str:
        lines = [*self.reasons, *(each.why for each in self.of.findings)]
        reasons = "".join(f"<li>{escape(line)}</li>" for line in lines)
        return f"<p><strong>{escape(self.verdict)}</strong></p><ul>{reasons}</ul>"


def of_transcript(report: OfTranscript) -> AuditReport:
    claim = report.claim
    return AuditReport(
        verdict=Verdict.NO_CLAIM if claim is None else claim.verdict,
        reasons=() if claim is None else tuple(claim.reasons),
        epsilon=report.epsilon,
        proven=report.proven,
        delta=report.delta,
        of=report,
    )


@dataclass(frozen=True, kw_only=True)
class Judged(ABC):
    """An audit that runs a user's code many times, where theory and an attack judge a claim.

    Attributes:
        claim: the user's, else the code's own; None where neither claims anything.
        delta: at which every epsilon is stated: the claim's, else `ASSUMED`.
        epsilon: by theory, inf without noise; None where theory cannot tell.
        advantage: measured, true less false positive rate, with its interval.
        lower_bounds: on epsilon, by name, all at `confidence` together.
        proven: the largest lower bound at `ALARM_CONFIDENCE`; only this one convicts.
        confidence: of every interval shown, in (0, 1); verdicts need `ALARM_CONFIDENCE`.
    """

    claim: Claim | None
    delta: float
    epsilon: float | None
    advantage: AdvantageEstimate
    lower_bounds: dict[str, EpsilonBound]
    proven: EpsilonBound
    confidence: float
    findings: tuple[Finding, ...]
    trials: int
    seed: int

    @property
    def lower_bound(self) -> EpsilonBound:
        return largest(self.lower_bounds)

    @property
    def alarms(self) -> int:
        return alarms(self.findings)

    @property
    @abstractmethod
    def judgement(self) -> Judgement:
        """The verdict on the claim, and its reasons."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """Return the report as strict JSON values; an infinite epsilon is None beside a flag."""

    def _document(
        self, kind: str, theory: Mapping[str, Any], measured: Mapping[str, Any], **own: Any
    ) -> dict[str, Any]:
        document = {
            "kind": kind,
            "verdict": self.verdict.value,
            "reasons": self.reasons,
            "claim": None if self.claim is None else asdict(self.claim),
            "theory": {
                "known": self.epsilon is not None,
                "epsilon": self.epsilon,
                "infinite": self.epsilon is not None and math.isinf(self.epsilon),
                **theory,
            },
            "measured": {
                "advantage": asdict(self.advantage),
                "epsilon_lower_bound": self.lower_bound.epsilon,
                "proven": {"epsilon": self.proven.epsilon, "confidence": ALARM_CONFIDENCE},
                "contradicts_theory": self.contradictory,
                "lower_bounds": {name: asdict(each) for name, each in self.lower_bounds.items()},
                **measured,
            },
            "findings": [finding.as_json() for finding in self.findings],
            "alarms": self.alarms,
            "confidence": self.confidence,
            "trials": self.trials,
            "seed": self.seed,
            **own,
        }
        return strict_json(document)

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdict

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.judgement.reasons

    @property
    def allowed(self) -> bool:
        if self.claim is None or self.epsilon is None:
            return False
        return self.claim.allows(self.epsilon)

    @property
    def contradictory(self) -> bool:
        """Whether the attack disproves a claim that theory supports: one of them is wrong."""
        return self.verdict is Verdict.CONVICTED and self.allowed

    def report(self) -> AuditReport:
        return AuditReport(
            verdict=self.verdict,
            reasons=self.reasons,
            epsilon=self.epsilon,
            proven=self.proven.epsilon,
            delta=self.delta,
            of=self,
        )


def largest(bounds: Mapping[str, EpsilonBound]) -> EpsilonBound:
    return max(bounds.values(), key=lambda bound: bound.epsilon)


LEAST_TRIALS, LONGEST_TIME = 20, 1e6


def check_numbers(
    trials: int, confidence: float, seed: int, time_limit: float | None = None
) -> None:
    """Refuse numbers with which no audit can run, before any code of the app runs."""
    significance(confidence)
    if trials < LEAST_TRIALS:
        raise InputError(f"{trials} trials cannot prove anything; give at least {LEAST_TRIALS}")
    if not 0 <= seed < 2**64:
        raise InputError(f"--seed is {seed}; give a whole number from 0 to 2^64 - 1")
    if time_limit is not None and not 0 < time_limit <= LONGEST_TIME:
        raise InputError(
            f"--time-limit is {time_limit:g} s; it must be above 0 and at most {LONGEST_TIME:.0f}"
        )
