"""The report of an audit: one type for every kind, which pages, the gate and Python read.

report.json has the same keys for every kind, and `details` of the kind's own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property
from html import escape
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import ConfigDict, TypeAdapter
from pydantic.json_schema import JsonSchemaValue

from adversaries.statistics.estimators import AdvantageEstimate
from adversaries.statistics.intervals import ALARM_CONFIDENCE, EpsilonBound
from fedsim.audits.judgement.claim import (
    IS,
    TO_CLAIM,
    Claim,
    Finding,
    Judgement,
    Verdict,
    alarms,
)
from fedsim.audits.results.checks import GateCheck, GateRule, of_audit, of_claim
from fedsim.audits.results.numbers import REALS, Real
from fedsim.audits.results.rows import Attack, Limit, Noise, Row, Source, judged, unmeasured
from fedsim.audits.results.theory import Predicted
from fedsim.privacy.identifiability import advantage_of_epsilon

Details = TypeVar("Details")


@dataclass(frozen=True, kw_only=True)
class AuditDocument(Generic[Details]):
    """The report of an audit."""

    __pydantic_config__: ClassVar = ConfigDict(use_attribute_docstrings=True)

    kind: str
    name: str
    unit: str | None
    """Unit of privacy: "record" or "client"; None where it is unknown."""
    verdict: Verdict
    reasons: Sequence[str]
    claim: Claim | None
    delta: Real | None
    """Delta of every epsilon; None where an auditor's node has seen no round."""
    confidence: Real
    """Confidence of every interval and bound, in (0, 1); verdicts need 99.99 %."""
    vantage: str
    """Observer whose row is judged, and which the short names of a gate stand for."""
    rows: Mapping[str, Row]
    checks: list[GateCheck]
    """What a release gate would check."""
    findings: Sequence[Finding]
    """Objections of the audit; those of severity "alarm" are counted below."""
    alarms: int
    """Number of findings that contradict what was configured, declared or claimed."""
    details: Details
    versions: Mapping[str, str]
    """Versions of the packages that took part."""


@cache
def _adapter(details: type) -> TypeAdapter[Any]:
    return TypeAdapter(AuditDocument[Annotated[details, REALS]])  # type: ignore[valid-type]


def schema(details: type) -> JsonSchemaValue:
    """Return the JSON Schema of the report of a kind of audit, by the type of its details."""
    written = _adapter(details).json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **written}


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """The report of an audit: of an app, a loop, a recorded federation or an auditor's node.

    Attributes:
        delta: at which every epsilon is stated; None where an auditor's node has seen no round.
        confidence: of every interval shown, in (0, 1); verdicts need `ALARM_CONFIDENCE`.
    """

    claim: Claim | None
    delta: float | None
    confidence: float

    if TYPE_CHECKING:  # fields of some reports, and properties of others

        @property
        def kind(self) -> str: ...
        @property
        def name(self) -> str: ...
        @property
        def unit(self) -> str | None: ...
        @property
        def versions(self) -> Mapping[str, str]:
            """Versions of the packages that took part."""

        @property
        def findings(self) -> Sequence[Finding]:
            """Objections of the audit."""

        @property
        def judgement(self) -> Judgement:
            """The verdict on the claim, and its reasons."""

        @property
        def epsilon(self) -> float | None:
            """Largest epsilon that the judged observer is allowed; None where it is unknown."""

        @property
        def vantage(self) -> str:
            """The observer whose row is judged."""

        @property
        def unjudged(self) -> Sequence[Row]:
            """A row for each observer, still without its state."""

        @property
        def details(self) -> Any:
            """What this kind of audit alone has, as a dataclass."""

    further_checks: Sequence[GateRule] = ()
    """Checks that this kind of audit alone makes."""

    @cached_property
    def rows(self) -> Mapping[str, Row]:
        """A row for each observer, by its name."""
        disproved = self.verdict is Verdict.CONVICTED
        # Theory may count what an alarm names, and still support the claim.
        doubted = self.alarms > 0 and self.verdict is not Verdict.SUPPORTED
        observers = [row.observer for row in self.unjudged if row.attack or row.noise]
        return judged(self.unjudged, {self.vantage, *observers} if disproved or doubted else ())

    @property
    def row(self) -> Row:
        """The row of the observer that is judged."""
        return self.rows[self.vantage]

    @property
    def proven_epsilon(self) -> float | None:
        """Largest lower bound on epsilon that would convict, of any row; None without one."""
        found = [row.attack.proven for row in self.rows.values() if row.attack is not None]
        return max((each for each in found if each is not None), default=None)

    @cached_property
    def report(self) -> Mapping[str, Any]:
        """The content of report.json. Raises ArithmeticError for NaN."""
        names = {each.name for each in fields(AuditDocument)} - {"checks"}
        document = AuditDocument(checks=[], **{name: getattr(self, name) for name in names})
        details: type = type(self.details)
        adapter = _adapter(details)
        written: dict[str, Any] = adapter.dump_python(document, mode="json", warnings="error")
        rules, claim = [*of_audit(written)], self.claim
        compared = self.verdict is not Verdict.NOT_JUDGED
        if claim is not None and compared and claim.delta == self.delta:
            rules += of_claim(claim.epsilon, written)
        rules += self.further_checks
        made = [*self._claim_checked(), *(rule.made(written) for rule in rules)]
        return written | {"checks": [dict(vars(each)) for each in made]}

    def _claim_checked(self) -> Iterator[GateCheck]:
        """Yield whether the claim holds; the exit status of the audit is its gate."""
        if self.claim is None:
            yield GateCheck(f"No ε is claimed. {TO_CLAIM}", "cannot-tell", "")
            return
        of = f"The claim of ε = {self.claim.epsilon:g} at δ = {self.claim.delta:g}"
        if self.verdict is Verdict.SUPPORTED:
            yield GateCheck(f"{of} is supported.", "passed", "")
        elif self.verdict is Verdict.NOT_JUDGED:
            yield GateCheck(f"{of} is not judged.", "cannot-tell", "")
        else:
            yield GateCheck(f"{of} is {IS[self.verdict]}.", "failed", "")

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
            return self.headline
        reasons = [f"{why[:1].upper()}{why[1:].removesuffix('.')}." for why in self.reasons]
        return f"{self.headline} {' '.join(reasons)}".rstrip()

    @property
    def headline(self) -> str:
        """The verdict on the claim, in a sentence that its reasons follow."""
        if self.claim is None:
            return "Nothing is claimed."
        source = "" if self.claim.source == "given" else f", by {self.claim.source},"
        subject = (
            f"The claim of epsilon {self.claim.epsilon:g} at delta {self.claim.delta:g}{source}"
        )
        heading = "Assumed:" if self.verdict is Verdict.SUPPORTED else "Why:"
        return f"{subject} is {IS[self.verdict]}. {heading * bool(self.reasons)}".rstrip()

    def _repr_html_(self) -> str:
        lines = [*self.reasons, *(each.why for each in self.findings)]
        reasons = "".join(f"<li>{escape(line)}</li>" for line in lines)
        return f"<p><strong>{escape(self.verdict)}</strong></p><ul>{reasons}</ul>"


@dataclass(frozen=True, kw_only=True)
class TranscriptReport(AuditReport, Generic[Details]):
    """The report of a transcript, a recorder's or an auditor's."""

    kind: str
    name: str
    versions: Mapping[str, str]
    unit: str | None
    findings: Sequence[Finding]
    judgement: Judgement
    vantage: str
    unjudged: Sequence[Row]
    details: Details
    total: float | None = None

    @property
    def epsilon(self) -> float | None:
        return self.row.epsilon if self.total is None else self.total


@dataclass(frozen=True)
class Decisions:
    """The decisions of an attack over all trials."""

    trials: int
    wins: int
    losses: int
    ties: int
    """Trials in which it favoured neither."""
    seed: int
    lower_bounds: Mapping[str, EpsilonBound]
    """Lower bounds on epsilon, which hold together."""
    contradict_theory: bool
    """Whether they disprove a claim that theory supports."""


REFUTED = (
    "the claim of epsilon {0.epsilon:g} at delta {0.delta:g} is refuted: the attack shows an "
    f"epsilon of at least {{1:.3g}} ({ALARM_CONFIDENCE:.2%} confidence)"
)


@dataclass(frozen=True, kw_only=True)
class Judged(AuditReport):
    """An audit that runs a user's code many times, where theory and an attack judge a claim.

    Attributes:
        claim: the user's, else the code's own; None where neither claims anything.
        delta: the claim's, else `ASSUMED`.
        advantage: measured, true less false positive rate, with its interval.
        proven: the largest lower bound at `ALARM_CONFIDENCE`; only this one convicts.
    """

    delta: float
    epsilon: float | None
    advantage: AdvantageEstimate
    lower_bounds: dict[str, EpsilonBound]
    proven: EpsilonBound
    objections: tuple[Finding, ...]
    trials: int
    seed: int

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The objections, and what the attack disproves."""
        claim, proven = self.claim, self.proven.epsilon
        if claim is None or proven <= claim.epsilon or self.verdict is not Verdict.CONVICTED:
            return self.objections
        return (*self.objections, Finding(REFUTED.format(claim, proven)))

    @property
    def lower_bound(self) -> EpsilonBound:
        return largest(self.lower_bounds)

    @property
    def allowed(self) -> bool:
        if self.claim is None or self.epsilon is None:
            return False
        return self.claim.allows(self.epsilon)

    @property
    def contradictory(self) -> bool:
        """Whether the attack disproves a claim that theory supports: one of them is wrong."""
        return self.verdict is Verdict.CONVICTED and self.allowed

    @property
    def decisions(self) -> Decisions:
        found = self.advantage
        counts = self.trials, found.wins, found.losses, found.ties
        return Decisions(*counts, self.seed, self.lower_bounds, self.contradictory)

    def observed(
        self,
        source: Source,
        attack: Attack | None,
        noise: Noise | None,
        detects: float | None,
        note: str,
        predicted: Predicted | None = None,
    ) -> list[Row]:
        """Return the row of the judged observer.

        Args:
            source: where the noise of theory's epsilon comes from.
            noise: measured noise; None where the noise itself was not observed.
        """
        limit = None
        if self.epsilon is not None:
            most = advantage_of_epsilon(self.epsilon, self.delta)
            limit = Limit.of_epsilon(self.epsilon, most, source)
        return [unmeasured(self.vantage, limit, attack, noise, predicted, detects, note)]

    @property
    def attack(self) -> Attack:
        """What the attack achieved over the trials."""
        bounds = self.lower_bounds
        return Attack.proving(
            self.lower_bound.epsilon,
            self.proven.epsilon,
            max(bounds, key=lambda name: bounds[name].epsilon),
            self.confidence,
            trials=self.trials,
            advantage=self.advantage,
        )


def largest(bounds: Mapping[str, EpsilonBound]) -> EpsilonBound:
    return max(bounds.values(), key=lambda bound: bound.epsilon)
