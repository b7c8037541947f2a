"""report.json of an audit: the same keys for every kind, and details of the kind's own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import ConfigDict, TypeAdapter
from pydantic.json_schema import JsonSchemaValue

from fedsim.audits.judgement.claim import Claim, Finding, Verdict
from fedsim.audits.results.checks import GateCheck
from fedsim.audits.results.numbers import REALS, Real
from fedsim.audits.results.rows import Row

Details = TypeVar("Details")


@dataclass(frozen=True, kw_only=True)
class AuditDocument(Generic[Details]):
    """The report of an audit."""

    __pydantic_config__: ClassVar = ConfigDict(use_attribute_docstrings=True)

    kind: str
    """Kind of the audit."""
    name: str
    """Name of what was audited."""
    unit: str | None
    """Unit of privacy: "record" or "client"; None where it is unknown."""
    verdict: Verdict
    """Verdict on the claim."""
    reasons: Sequence[str]
    """Reasons of the verdict, in sentences."""
    claim: Claim | None
    """The judged claim; None without one."""
    delta: Real | None
    """Delta of every epsilon; None where an auditor's node has seen no round."""
    confidence: Real
    """Confidence of every interval and bound, in (0, 1); verdicts need 99.99 %."""
    vantage: str
    """Observer whose row is judged, and which the short names of a gate stand for."""
    rows: Mapping[str, Row]
    """A row for each observer, by its name."""
    checks: list[GateCheck]
    """What a release gate would check."""
    findings: Sequence[Finding]
    """Objections of the audit; those of severity "alarm" are counted below."""
    alarms: int
    """Number of findings that contradict what was configured, declared or claimed."""
    details: Details
    """What this kind of audit alone has."""
    versions: Mapping[str, str]
    """Versions of the packages that took part."""


@cache
def _adapter(details: type) -> TypeAdapter[Any]:
    return TypeAdapter(AuditDocument[Annotated[details, REALS]])  # type: ignore[valid-type]


def encode(document: AuditDocument[Any]) -> dict[str, Any]:
    """Return an audit's report as report.json has it. Raises ArithmeticError for NaN."""
    details: type = type(document.details)
    adapter = _adapter(details)
    encoded: dict[str, Any] = adapter.dump_python(document, mode="json", warnings="error")
    return encoded


def schema(details: type) -> JsonSchemaValue:
    written = _adapter(details).json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **written}
