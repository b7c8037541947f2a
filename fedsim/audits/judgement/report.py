"""The report of an audit: one type for every kind, which pages, the gate and Python read.

report.json has the same keys for every kind, and `details` of the kind's own.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from html import escape
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import SchemaValidator, core_schema

from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.judgement.claim import IS, Claim, Evidence, Finding, Verdict, alarms, judge
from fedsim.audits.results.conditions import number_at
from fedsim.audits.results.numbers import REALS, Real
from fedsim.audits.results.rows import Attack, Limit, Row, View, audit_view, judged

Details = TypeVar("Details")

REFUTED = (
    "the claim of epsilon {0.epsilon:g} at delta {0.delta:g} is refuted: epsilon is at least "
    f"{{1:.3g}} ({ALARM_CONFIDENCE:.2%} confidence)"
)


@dataclass(frozen=True, kw_only=True)
class AuditReport(Generic[Details]):
    """The report of an audit."""

    __pydantic_config__: ClassVar = ConfigDict(
        strict=True, extra="forbid", use_attribute_docstrings=True
    )

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
    findings: Sequence[Finding]
    """Objections of the audit; those of severity "alarm" are counted below."""
    alarms: int
    """Number of findings that contradict what was configured, declared or claimed."""
    details: Details
    versions: Mapping[str, str]

    @property
    def row(self) -> Row:
        """The row of the observer that is judged."""
        return self.rows[self.vantage]

    @property
    def attack(self) -> Attack:
        """The attack of that observer. Raises ValueError where nothing was measured."""
        if self.row.attack is None:
            raise ValueError(f"the observer '{self.vantage}' has no measurement")
        return self.row.attack

    @property
    def unguaranteed(self) -> bool:
        """Whether it is known that something is missing which every limit needs."""
        return getattr(self.details, "unguaranteed", False)

    @property
    def epsilon(self) -> float | None:
        """Epsilon of all that a claim is about, as the gate has it; None where it is unknown."""
        return number_at(self.report, "epsilon")

    @property
    def proven_epsilon(self) -> float | None:
        """Largest lower bound on epsilon that would convict, of any row; None without one."""
        found = [row.attack.proven for row in self.rows.values() if row.attack is not None]
        return max((each for each in found if each is not None), default=None)

    @cached_property
    def report(self) -> Mapping[str, Any]:
        """The content of report.json. Raises ArithmeticError for NaN."""
        details: type = type(self.details)
        adapter = _adapter(details)
        written: dict[str, Any] = adapter.dump_python(self, mode="json", warnings="error")
        return written

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

    @property
    def conclusion(self) -> str:
        """The verdict on the claim and its reasons, in sentences."""
        if self.claim is None:
            return self.headline
        reasons = [f"{why[:1].upper()}{why[1:].removesuffix('.')}." for why in self.reasons]
        return f"{self.headline} {' '.join(reasons)}".rstrip()

    def _repr_html_(self) -> str:
        lines = [*self.reasons, *(each.sentence for each in self.findings)]
        reasons = "".join(f"<li>{escape(line)}</li>" for line in lines)
        return f"<p><strong>{escape(self.verdict)}</strong></p><ul>{reasons}</ul>"


@cache
def _adapter(details: type) -> TypeAdapter[Any]:
    return TypeAdapter(AuditReport[Annotated[details, REALS]])  # type: ignore[valid-type]


def schema(details: type) -> JsonSchemaValue:
    """Return the JSON Schema of the report of a kind of audit, by the type of its details."""
    written = _adapter(details).json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **written}


def decode(values: Mapping[str, Any], details: type) -> AuditReport[Any]:
    """Return the report of the values of report.json. Raises ValueError for other types."""
    try:
        # Errors of Python's values share them; each error of JSON has a copy of its object.
        _reader(details).validate_python(values, strict=False)
        report: AuditReport[Any] = _reader(details).validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        raise ValueError(_first(error)) from None
    if report.vantage not in report.rows:
        raise ValueError(f"it has no 'rows.{report.vantage}'")
    return report


FAIL_FAST = ["list", "tuple"]
"""Types of schemas that may end at the first wrong entry; of objects, in newer pydantic only."""
if "fail_fast" in core_schema.DictSchema.__annotations__:
    FAIL_FAST.append("dict")


@cache
def _reader(details: type) -> SchemaValidator:
    """Return a reader that ends at the first wrong entry of a list or an object of any keys."""
    schema = _adapter(details).core_schema
    pending: list[Any] = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            if part.get("type") in FAIL_FAST:
                part["fail_fast"] = True
            pending += part.values()
        elif isinstance(part, list):
            pending += part
    return SchemaValidator(schema)


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    key = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"it has no '{key}'"
    if first["type"] == "unexpected_keyword_argument":
        return f"it has '{key}', which no report has"
    return f"its '{key}' is {first['input']!r:.200}"


def unclaimed(findings: Sequence[Finding], **facts: Any) -> AuditReport[Any]:
    """Return the report of what claims nothing of itself, as a run; facts: the other fields."""
    return AuditReport(
        verdict=Verdict.NO_CLAIM,
        reasons=[],
        claim=None,
        findings=findings,
        alarms=alarms(findings),
        **facts,
    )


UNCERTAIN = (
    "the measured noise allows an epsilon of {}. More rounds would measure it more exactly, and "
    "the audit would compare configured noise with it"
)


def compared(claim: Claim, evidence: Evidence, limit: Limit | None) -> Evidence:
    """Return the evidence with what the judged limit says of the claim."""
    if limit is None or claim.allows(limit.epsilon):
        return evidence
    if limit.source != "measured":  # the configuration itself contradicts the claim
        return replace(evidence, exceeded=True)
    largest = "any size" if math.isinf(limit.epsilon) else f"up to {limit.epsilon:.3g}"
    return replace(evidence, unsure=[UNCERTAIN.format(largest)])


def concluded(
    views: Sequence[View],
    evidence: Evidence,
    *,
    claim: Claim | None,
    findings: Sequence[Finding],
    delta: float | None,
    confidence: float,
    **facts: Any,
) -> AuditReport[Any]:
    """Return the report of an audit: rows, verdict and states of every kind.

    Args:
        views: a view of each observer; the last one is judged.
        evidence: what else speaks for and against the claim than the judged row, whose delta is
            the claim's.
        findings: objections of the audit; one that names the proof is added to them.
        delta: of every epsilon.
        facts: kind, name, unit, details and versions.
    """
    rows = [audit_view(view, confidence) for view in views]
    judgement, found, proven = judge(None, Evidence()), [*findings], 0.0
    if claim is not None:
        given, attacks = evidence, list[Attack]()
        if claim.delta == delta:
            given = compared(claim, evidence, rows[-1].limit)
            attacks = [row.attack for row in rows if row.attack]
        proven = max([given.proven, *(each.proven or 0.0 for each in attacks)])
        judgement = judge(claim, replace(given, proven=proven))
    verdict = judgement.verdict
    if claim is not None and verdict is Verdict.CONVICTED and proven > claim.epsilon:
        found.append(Finding(REFUTED.format(claim, proven)))
    # Theory may count what an alarm names, and still support the claim.
    doubted = alarms(found) > 0 and verdict is not Verdict.SUPPORTED
    measured = {row.observer for row in rows if row.attack or row.noise}
    alarmed = measured | {rows[-1].observer} if doubted or verdict is Verdict.CONVICTED else ()
    return AuditReport(
        claim=claim,
        verdict=verdict,
        reasons=judgement.reasons,
        findings=found,
        alarms=alarms(found),
        vantage=rows[-1].observer,
        rows=judged(rows, alarmed),
        delta=delta,
        confidence=confidence,
        **facts,
    )
