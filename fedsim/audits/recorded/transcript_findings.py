"""Measurements and findings of a transcript's audit, as report.json has them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedsim.audits.judgement.judge import Finding, Severity


class Notes:
    """Findings of single rounds; equal ones become one finding with all of their rounds."""

    def __init__(self) -> None:
        self._rounds: dict[tuple[Severity, str], list[int]] = {}

    def add(self, severity: Severity, text: str, round: int) -> None:
        """Add a finding of a round."""
        self._rounds.setdefault((severity, text), []).append(round)

    def findings(self) -> list[Finding]:
        return [
            Finding(severity, "", text, rounds=tuple(rounds))
            for (severity, text), rounds in self._rounds.items()
        ]


@dataclass(frozen=True)
class Asked:
    """The options of a report, and its findings, to which measurements append."""

    mechanism: Mapping[str, Any]
    delta: float
    confidence: float
    findings: list[Finding]


@dataclass(frozen=True)
class Measured:
    """Measurements of all rounds of a vantage point.

    Attributes:
        release: noise and clients, from `transcript_release.measured`; None if unknown.
        canary: from `participant_rounds.canary_measured`; None without canaries.
        unmeasured: why there is no release, "" if there is one.
        unit: unit of all of this, one of `records.UNITS`.
        filtered: from `filter_rounds`, for a filter that is not a Gaussian mechanism; else None.
    """

    release: dict[str, Any] | None = None
    canary: dict[str, Any] | None = None
    unmeasured: str = ""
    unit: str = "client"
    filtered: dict[str, Any] | None = None
