"""The options of an audit, and its report as the gate and the Python API read every kind."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adversaries.errors import InputError
from adversaries.statistics.estimators import AdvantageEstimate
from adversaries.statistics.intervals import (
    ALARM_CONFIDENCE,
    EpsilonBound,
    check_positive_delta,
    significance,
)
from fedsim.audits.judgement.claim import IS, UNCLAIMED, Claim, Finding, Judgement, Verdict, alarms
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


@dataclass(frozen=True, kw_only=True)
class AuditReport(ABC):
    """The report of an audit: of an app, a loop, a recorded federation or an auditor's node.

    Attributes:
        claim: the judged claim, with its unit; None without one.
        delta: at which every epsilon is stated; None where an auditor's node has seen no round.
        confidence: of every interval shown, in (0, 1); verdicts need `ALARM_CONFIDENCE`.
    """

    claim: Claim | None
    delta: float | None
    confidence: float
    findings: Sequence[Finding] = ()

    @property
    @abstractmethod
    def judgement(self) -> Judgement:
        """The verdict on the claim, and its reasons."""

    if TYPE_CHECKING:  # a field of some reports, and a property of others

        @property
        def epsilon(self) -> float | None:
            """Epsilon of the least protected client or record at delta.

            It is measured in a recorded transcript, configured in an app or a loop, and stated by
            the server to an auditor's node. It is infinite without noise and None where unknown.
            """

    @property
    @abstractmethod
    def proven_epsilon(self) -> float | None:
        """Lower bound on epsilon, at the confidence of a conviction; None where unmeasured."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values; a transcript's may hold infinite floats."""

    @cached_property
    def report(self) -> Mapping[str, Any]:
        return self.as_json()

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdict

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.judgement.reasons

    @property
    def alarms(self) -> int:
        return alarms(self.findings)

    @property
    def conclusion(self) -> str:
        """The verdict on the claim and its reasons, in sentences."""
        if self.claim is None:
            return "Nothing is claimed."
        subject = f"The claim of epsilon {self.claim.epsilon:g} at delta {self.claim.delta:g}"
        reasons = [f"{why[:1].upper()}{why[1:].removesuffix('.')}." for why in self.reasons]
        heading = "Assumed: " if self.verdict is Verdict.SUPPORTED else "Why: "
        why = heading * bool(reasons) + " ".join(reasons)
        return f"{subject} is {IS[self.verdict]}. {why}".rstrip()

    def _repr_html_(self) -> str:
        lines = [*self.reasons, *(each.why for each in self.findings)]
        reasons = "".join(f"<li>{escape(line)}</li>" for line in lines)
        return f"<p><strong>{escape(self.verdict)}</strong></p><ul>{reasons}</ul>"


@dataclass(frozen=True, kw_only=True)
class TranscriptReport(AuditReport):
    """The report of a transcript, a recorder's or an auditor's."""

    judgement: Judgement = UNCLAIMED

    def _document(self) -> dict[str, Any]:
        """Return all fields for JSON, but with infinite floats; the claim has its verdict."""
        written = asdict(self) | {"alarms": self.alarms}
        judged = written.pop("judgement")
        if self.claim is not None:
            names = ("epsilon", "delta", "unit")
            written["claim"] = {name: getattr(self.claim, name) for name in names} | judged
        written["findings"] = [each.as_json() for each in self.findings]
        return written


@dataclass(frozen=True, kw_only=True)
class Judged(AuditReport):
    """An audit that runs a user's code many times, where theory and an attack judge a claim.

    Attributes:
        claim: the user's, else the code's own; None where neither claims anything.
        delta: the claim's, else `ASSUMED`.
        epsilon: by theory, inf without noise; None where theory cannot tell.
        advantage: measured, true less false positive rate, with its interval.
        lower_bounds: on epsilon, by name, all at `confidence` together.
        proven: the largest lower bound at `ALARM_CONFIDENCE`; only this one convicts.
    """

    delta: float
    epsilon: float | None
    advantage: AdvantageEstimate
    lower_bounds: dict[str, EpsilonBound]
    proven: EpsilonBound
    findings: tuple[Finding, ...]
    trials: int
    seed: int

    @property
    def lower_bound(self) -> EpsilonBound:
        return largest(self.lower_bounds)

    @property
    def proven_epsilon(self) -> float:
        return self.proven.epsilon

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
    def allowed(self) -> bool:
        if self.claim is None or self.epsilon is None:
            return False
        return self.claim.allows(self.epsilon)

    @property
    def contradictory(self) -> bool:
        """Whether the attack disproves a claim that theory supports: one of them is wrong."""
        return self.verdict is Verdict.CONVICTED and self.allowed


def largest(bounds: Mapping[str, EpsilonBound]) -> EpsilonBound:
    return max(bounds.values(), key=lambda bound: bound.epsilon)
