"""Recorded mechanisms in believable numbers, and what an audit of rounds notes and measures."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedsim.audits.judgement.claim import Finding, Severity
from fedsim.audits.recorded.releases import CanaryReport, ReleaseReport
from fedsim.audits.steps.step import number

NUMBERS = (
    *("noise_multiplier", "clipping_norm", "noise_clipping_norm", "num_sampled_clients"),
    *("clipped_count_std", "divisor", "neighbour_divisor", "sample_rate", "expected_batch_size"),
    *("accountant_noise_multiplier", "accountant_sample_rate"),
)


def claimed_std(mechanism: Mapping[str, Any]) -> float | None:
    """Return the noise of Flower's central DP: z C/n, with the C that scales the noise."""
    multiplier = number(mechanism, "noise_multiplier")
    norm = number(mechanism, "noise_clipping_norm") or number(mechanism, "clipping_norm")
    clients = number(mechanism, "num_sampled_clients")
    if multiplier is None or norm is None or not clients:
        return None
    return multiplier * norm / clients


class Notes:
    """Findings of single rounds; equal ones become one finding with all of their rounds."""

    def __init__(self) -> None:
        self._rounds: dict[tuple[Severity, str, str], list[int]] = {}

    def add(self, severity: Severity, text: str, round: int, rule: str = "") -> None:
        self._rounds.setdefault((severity, text, rule), []).append(round)

    def findings(self) -> list[Finding]:
        return [
            Finding(text, severity=severity, rule=rule, rounds=tuple(rounds))
            for (severity, text, rule), rounds in self._rounds.items()
        ]


@dataclass(frozen=True)
class Asked:
    """The options of a report, and its findings, to which measurements append."""

    mechanism: Mapping[str, Any]
    delta: float
    confidence: float
    findings: list[Finding]


@dataclass(frozen=True)
class MeasuredRounds:
    """Measurements of all rounds of a vantage point.

    Attributes:
        unsure: why the release may not be all that was seen; "" if it is.
    """

    release: ReleaseReport | None = None
    canary: CanaryReport | None = None
    unmeasured: str = ""
    unit: str = "client"
    unsure: str = ""
