"""The report of an audit: what the gate, the exit status and the Python API read of every kind."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any

from adversaries.statistics.estimators import Advantage
from adversaries.statistics.intervals import ALARM_CONFIDENCE, LowerBound
from fedsim.audits.judgement.claim import Claim
from fedsim.audits.judgement.judge import Finding, Judgement, Verdict, alarms
from fedsim.common.strict_json import strict_json


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """What an audit of a federation or a training loop concludes.

    Attributes:
        verdict: on the claim.
        reasons: why, or why it cannot tell.
        epsilon: what the noise gives the least protected client or record at delta: as measured in
            a recorded transcript, as configured in an app or a loop, as the server says it to an
            auditor's node. Infinite without noise, None where unknown.
        proven: an epsilon that is exceeded as surely as a conviction takes; None where unmeasured.
        delta: at which both are stated; None where an auditor's node has seen no round.
        report: what `fedsim audit … --json` prints; of a transcript, infinity is a number here.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    epsilon: float | None
    proven: float | None
    delta: float | None
    report: Mapping[str, Any] = field(repr=False)

    def _repr_html_(self) -> str:
        """Return verdict, reasons and findings, as a notebook shows them."""
        findings = self.report.get("findings") or ()
        lines = [*self.reasons, *(str(each["why"]) for each in findings)]
        reasons = "".join(f"<li>{escape(line)}</li>" for line in lines)
        return f"<p><strong>{escape(self.verdict)}</strong></p><ul>{reasons}</ul>"


def of_transcript(
    report: Mapping[str, Any], epsilon: float | None, proven: float | None
) -> AuditReport:
    """Return the conclusion on a transcript.

    Args:
        epsilon: by the noise that was measured, or that the server says; None where unknown.
        proven: that is exceeded as surely as a conviction takes; None where unmeasured.
    """
    claim = report["claim"]
    return AuditReport(
        verdict=Verdict.NO_CLAIM if claim is None else Verdict(claim["verdict"]),
        reasons=() if claim is None else tuple(claim["reasons"]),
        epsilon=epsilon,
        proven=proven,
        delta=report["delta"],
        report=report,
    )


@dataclass(frozen=True, kw_only=True)
class Judged(ABC):
    """An audit that runs somebody's code again and again: theory and an attack judge a claim.

    Attributes:
        claim: given, else what the code itself claims; None where it claims nothing.
        delta: at which every epsilon is stated: the claim's, else `ASSUMED`.
        epsilon: by theory, inf without noise; None where theory cannot tell.
        advantage: as measured, true less false positive rate, with its interval.
        lower_bounds: on epsilon, by name, all at `confidence` together.
        proven: the largest lower bound at `ALARM_CONFIDENCE`, which alone convicts.
        confidence: of what is shown, in (0, 1); verdicts need `ALARM_CONFIDENCE`.
        findings: what the rules object to, in their order.
    """

    claim: Claim | None
    delta: float
    epsilon: float | None
    advantage: Advantage
    lower_bounds: dict[str, LowerBound]
    proven: LowerBound
    confidence: float
    findings: tuple[Finding, ...]
    trials: int
    seed: int

    @property
    def lower_bound(self) -> LowerBound:
        """The largest lower bound; it holds with `confidence`, as all do."""
        return largest(self.lower_bounds)

    @property
    def alarms(self) -> int:
        """How many rules found a guarantee broken, whatever room a claim leaves."""
        return alarms(self.findings)

    @property
    @abstractmethod
    def judgement(self) -> Judgement:
        """What the audit concludes about the claim, and why it does not judge it."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """Return the report as strict JSON values; an infinite epsilon is None beside a flag."""

    def _document(
        self, kind: str, theory: Mapping[str, Any], measured: Mapping[str, Any], **own: Any
    ) -> dict[str, Any]:
        """Return the report of any such audit, with what one kind of them adds to its parts."""
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
        """What the audit concludes about the claim."""
        return self.judgement.verdict

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the claim is not judged, and what would let it be; () if it is, or if none is."""
        return self.judgement.reasons

    @property
    def allowed(self) -> bool:
        """Whether there is a claim, and theory's epsilon is at most the claimed one."""
        if self.claim is None or self.epsilon is None:
            return False
        return self.claim.allows(self.epsilon)

    @property
    def contradictory(self) -> bool:
        """Whether the attack disproves a claim that theory supports: one of the two is wrong."""
        return self.verdict is Verdict.CONVICTED and self.allowed

    def report(self, code: Mapping[str, str]) -> AuditReport:
        """Return the report of the audit.

        Args:
            code: the digests of what was run, from before it ran.
        """
        return AuditReport(
            verdict=self.verdict,
            reasons=self.reasons,
            epsilon=self.epsilon,
            proven=self.proven.epsilon,
            delta=self.delta,
            report=self.as_json() | {"code": code},
        )


def largest(bounds: Mapping[str, LowerBound]) -> LowerBound:
    """Return the bound that proves most."""
    return max(bounds.values(), key=lambda bound: bound.epsilon)
