"""What an audit of a transcript measures and objects to, as report.json has it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedsim.audits.judgement.judge import Finding, Severity


class Notes:
    """Findings of single rounds: those that say the same are one, with all of its rounds."""

    def __init__(self) -> None:
        self._rounds: dict[tuple[Severity, str], list[int]] = {}

    def add(self, severity: Severity, text: str, round: int) -> None:
        """Note a finding of a round.

        Args:
            severity: "alarm", "caution" or "note".
        """
        self._rounds.setdefault((severity, text), []).append(round)

    def findings(self) -> list[Finding]:
        return [
            Finding(severity, "", text, rounds=tuple(rounds))
            for (severity, text), rounds in self._rounds.items()
        ]


@dataclass(frozen=True)
class Asked:
    """What a report is to be of.

    Attributes:
        findings: those of the report, to which is appended what is wrong.
    """

    mechanism: Mapping[str, Any]
    delta: float
    confidence: float
    findings: list[Finding]


@dataclass(frozen=True)
class Measured:
    """What the rounds of a vantage point gave.

    Attributes:
        release: noise and clients, as `transcript_release.measured`; None if nothing is known.
        canary: as `participant_rounds.canary_measured`, None without canaries.
        unmeasured: why there is no release, "" if there is one.
        unit: one of `records.UNITS`, of which all of this is.
        filtered: what a filter that is no Gaussian mechanism did, as `filter_rounds`; None without.
    """

    release: dict[str, Any] | None = None
    canary: dict[str, Any] | None = None
    unmeasured: str = ""
    unit: str = "client"
    filtered: dict[str, Any] | None = None
