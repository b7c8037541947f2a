"""Recorded mechanisms in believable numbers, and what an audit notes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedsim.audits.judgement.claim import Finding, Severity
from fedsim.audits.recorded.recorded_report import CanaryReport, ReleaseReport
from fedsim.federation.transcripts.records import ObservedRound

CONFIGURED = 1e-30, 1e30
"""Range of believed numbers other than 0, in which squares do not overflow."""

NUMBERS = (
    "noise_multiplier",
    "clipping_norm",
    "noise_clipping_norm",
    "num_sampled_clients",
    "clipped_count_std",
    "local_clipping_norm",
    "local_sensitivity",
    "local_epsilon",
    "local_delta",
    "divisor",
    "neighbour_divisor",
    "sample_rate",
    "expected_batch_size",
    "accountant_noise_multiplier",
    "accountant_sample_rate",
)


def claimed_std(mechanism: Mapping[str, Any]) -> float | None:
    """Return the noise of Flower's central DP: z C/n, with the C that scales the noise."""
    multiplier = number(mechanism, "noise_multiplier")
    norm = number(mechanism, "noise_clipping_norm") or number(mechanism, "clipping_norm")
    clients = number(mechanism, "num_sampled_clients")
    if multiplier is None or norm is None or not clients:
        return None
    return multiplier * norm / clients


def claimed_local_std(mechanism: Mapping[str, Any]) -> float | None:
    """Return the noise of Flower's LocalDpMod: s sqrt(2 ln(1.25/delta)) / epsilon."""
    sensitivity, epsilon, delta = (
        number(mechanism, f"local_{name}") for name in ("sensitivity", "epsilon", "delta")
    )
    if sensitivity is None or not epsilon or not delta or delta >= 1.25:
        return None
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def number(mechanism: Mapping[str, Any], name: str) -> float | None:
    value = mechanism.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return None if unbelievable(value) else float(value)


def unbelievable(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    smallest, largest = CONFIGURED
    return not (value == 0 or smallest <= value <= largest)


class Charge(NamedTuple):
    """An accountant's record of a step: z, q, and how many steps it counts."""

    noise_multiplier: float
    sample_rate: float
    steps: int


@dataclass(frozen=True)
class RecordedStep:
    """One step of DP-SGD, as recorded; None where a value is unknown.

    Attributes:
        place: index in the file, from 1.
        engine: name of its recorder, one for each engine or process.
        sample_rate: q, if batches are declared Poisson samples; 1 for all records.
        sum_length: |S| of the whole clipped sum.
        expected: expected size of the batch, N q rounded down, where N was not recorded.
        accumulated: number of batches in the step.
        count_std: noise on a count of clipped gradients, 0 if unknown; None without a count.
        neighbour_divisor: d with one record fewer.
        clipped: whether the sum is that of clipped gradients; None if it was not checked.
    """

    place: int
    engine: str
    divisor: float
    clipping_norm: float | None
    noise_multiplier: float | None
    sample_rate: float | None
    batch: int | None
    members: tuple[int, ...] | None
    records: int | None
    sum_length: float | None
    expected: float | None
    accumulated: int
    sampling: str
    count_std: float | None
    neighbour_divisor: float | None
    charged: Charge | None
    clipped: bool | None = None


def step_of(place: int, observed: ObservedRound) -> RecordedStep | None:
    """Return a recorded step; None if its divisor is not a number above 0."""
    mechanism = observed.mechanism
    divisor = 1.0 if "divisor" not in mechanism else number(mechanism, "divisor")
    if not divisor or divisor < 0:
        return None
    reply = next(iter(observed.replies.values()), None)
    size = None if reply is None else reply.num_examples
    rate, accumulated = number(mechanism, "sample_rate"), number(mechanism, "accumulated")
    clipped = mechanism.get("clipped")
    adaptive = mechanism.get("adaptive") is True
    return RecordedStep(
        place=place,
        engine=str(mechanism.get("engine", "")),
        divisor=divisor,
        clipping_norm=number(mechanism, "clipping_norm"),
        noise_multiplier=number(mechanism, "noise_multiplier"),
        sample_rate=rate if rate is not None and 0 < rate <= 1 else None,
        batch=None if size is None or not 0 <= size < 2**53 else int(size),
        members=observed.participants,
        records=int(number(mechanism, "records") or 0) or None,
        sum_length=number(mechanism, "sum_length"),
        expected=number(mechanism, "expected_batch_size"),
        accumulated=max(1, int(accumulated or 1)),
        sampling=str(mechanism.get("sampling", "")),
        count_std=(number(mechanism, "clipped_count_std") or 0.0) if adaptive else None,
        neighbour_divisor=number(mechanism, "neighbour_divisor") or None,
        charged=_charge(observed),
        clipped=clipped if isinstance(clipped, bool) else None,
    )


def _charge(observed: ObservedRound) -> Charge | None:
    multiplier, rate, steps = (
        number(observed.mechanism, f"accountant_{name}")
        for name in ("noise_multiplier", "sample_rate", "steps")
    )
    if multiplier is None or rate is None or not 0 < rate <= 1 or not steps:
        return None
    return Charge(multiplier, rate, int(steps))


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
        release: noise and clients, from `transcript_release.measured`; None if unknown.
        canary: from `participant_rounds.canary_measured`; None without canaries.
        unmeasured: why there is no release, "" if there is one.
        unit: unit of all of this, one of `records.UNITS`.
        unsure: why the release may not be all that was seen; "" if it is.
    """

    release: ReleaseReport | None = None
    canary: CanaryReport | None = None
    unmeasured: str = ""
    unit: str = "client"
    unsure: str = ""
