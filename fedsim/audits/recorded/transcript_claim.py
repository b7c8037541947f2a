"""What a transcript says of the epsilon that somebody claims of all of its rounds.

A transcript measures the noise that is added to whole updates. What refutes a claim about those is
proven with the confidence of every alarm. What supports it is the noise that was measured, at the
low end of its interval; where noise was configured and the measured one does not contradict it, the
configured. A claim about records, or one that rests on noise which was there before the recorder
saw anything, is not judged: the report says why, and what would let it be.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.judgement.verdict import Verdict
from fedsim.audits.recorded.client_noise import Reported
from fedsim.audits.recorded.noise_shape import ALIKE
from fedsim.audits.recorded.transcript_findings import Measured, finding
from fedsim.federation.transcripts.records import UNITS

Part = Mapping[str, Any]

ROUNDING = 1e-6
"""Relative excess of an epsilon over the claim that is rounding."""

RECORDS = (
    "it is of a record of a client's data, and a transcript measures what is learnt of a client's "
    "whole update"
)
CLIENTS = (
    "it is of a client's whole update, and this training loop was recorded as one whose noise "
    "protects a record"
)
UNKNOWN_UNIT = (
    "clients report an epsilon of their own ({}), so that it may be of their records, of which a "
    "transcript measures nothing; if it is of a client's whole update, say so: "
    'record(..., unit="client"), or the claimed unit client'
)
NOISE_ELSEWHERE = (
    "nobody adds noise after the updates were sent, and what clients add before is part of what "
    "was recorded; where they do, record one of them: recording_mod(local_dp=...), or canary_mod"
)
UNBOUNDED = (
    "nobody recorded what an update is clipped to, without which noise protects nobody in "
    "particular; declare it: record(..., clipping_norm=...)"
)
UNKNOWN_COUNT = (
    "no noise on the count of clipped updates was recorded, which adaptive clipping releases too"
)
HIDDEN = "the configured noise is so small that rounding hides whether it was added"
CANARY_UNIT = (
    "canaries measure what is learnt of a client's whole update as training returns it, and "
    "nothing says that the claim is of that; if it is, say so with the claimed unit client"
)
CANARIES = "canaries may disprove a claim, and support none; record at the server as well"
UNCERTAIN = (
    "the noise that was measured allows an epsilon of {}; more rounds would measure it more "
    "exactly, and configured noise would be held against it"
)

UNBOUNDED_FILTER = "is refuted: the epsilon of {} is infinite by {}"


@dataclass(frozen=True)
class Claimed:
    """What somebody claims of all rounds of a run.

    Attributes:
        epsilon: finite, at least 0.
        delta: that of the report.
        unit: one of `records.UNITS`, None where nobody said: what was declared then counts.
    """

    epsilon: float
    delta: float
    unit: str | None = None


@dataclass(frozen=True)
class Evidence:
    """What there is to judge by.

    Attributes:
        mechanism: as recorded; the last round that names a value counts.
        measured: what the rounds gave.
        reported: epsilons that clients state of their own training, None if none does.
        missing: why rounds may be missing, "" if all are there.
        alarms: whether the report has an alarm, after which no claim is supported.
    """

    mechanism: Mapping[str, Any]
    measured: Measured
    reported: Reported | None
    missing: str
    alarms: bool


def judge(claim: Claimed, evidence: Evidence, findings: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the claim with its verdict, and the reasons of one that is not judged.

    Args:
        claim: of all rounds.
        evidence: what the transcript gives to judge it by.
        findings: those of the report; what refutes the claim is appended as alarms.
    """
    unit = claim.unit or evidence.mechanism.get("unit")
    unit = unit if unit in UNITS else None
    other = RECORDS if evidence.measured.unit == "client" else CLIENTS
    refuted, verdict, reasons = list[str](), Verdict.NOT_JUDGED, [other]
    if unit is None and evidence.reported is not None:
        reasons = [UNKNOWN_UNIT.format(evidence.reported.named)]
    elif unit in (None, evidence.measured.unit):
        refuted, verdict, reasons = _of_updates(claim, unit, evidence)
    findings += [
        finding("alarm", f"the claim of epsilon {claim.epsilon:g} at delta {claim.delta:g} {text}")
        for text in refuted
    ]
    return {
        "epsilon": claim.epsilon,
        "delta": claim.delta,
        "unit": unit,
        "verdict": verdict.value,
        "reasons": reasons,
    }


def _of_updates(
    claim: Claimed, unit: str | None, evidence: Evidence
) -> tuple[list[str], Verdict, list[str]]:
    """Return what refutes a claim of whole updates, the verdict, and why there is none."""
    release, canary = evidence.measured.release, evidence.measured.canary
    refuted, unjudged = [], []
    if canary is not None and unit is None and "clipping" not in evidence.mechanism:
        unjudged.append(CANARY_UNIT)
    elif canary is not None:
        unjudged.append(CANARIES)
        refuted += _refutation(claim, canary["proven"]["epsilon_all_rounds"], "that canaries found")
    filtered = evidence.measured.filtered
    if filtered is not None and "proven" in filtered:
        refuted += _refutation(claim, filtered["proven"]["epsilon"], "of the upload's noise")
    elif filtered is not None and "identified" in filtered:  # which no confidence speaks of
        refuted.append(UNBOUNDED_FILTER.format(filtered["filter"], filtered["identified"]["by"]))
    if release is None:
        unjudged += [] if canary is not None else [evidence.measured.unmeasured]
    elif why := _unjudgeable(release):
        unjudged.append(why)
    else:
        proven = release["proven"]
        node = proven["node"]
        whose = f"of a {evidence.measured.unit}" if node is None else f"of node {node}"
        refuted += _refutation(claim, proven["epsilon"], whose)
        if not refuted:
            return [], *_of_release(claim, release, evidence)
    if refuted:
        return refuted, Verdict.CONVICTED, []
    return [], Verdict.NOT_JUDGED, unjudged


def _unjudgeable(release: Part) -> str:
    """Say why a release says nothing of a claim, "" if it does."""
    claimed = None not in release["claimed_std"] and 0 not in release["claimed_std"]
    if release["noise"] == "none":
        return "" if claimed else NOISE_ELSEWHERE
    if release["noise"] == "hidden":
        return HIDDEN
    if not release["clipped"]:
        return UNBOUNDED
    return "" if release["count_known"] else UNKNOWN_COUNT


def _of_release(claim: Claimed, release: Part, evidence: Evidence) -> tuple[Verdict, list[str]]:
    """Return the verdict on a claim that nothing refutes, and why it is not judged."""
    if evidence.alarms:
        return Verdict.SUSPECT, []
    if evidence.missing:
        return Verdict.NOT_JUDGED, [f"{evidence.missing}, and the claim is of all rounds"]
    at_most = release["proven"]["epsilon_at_most"]
    if at_most <= claim.epsilon * (1 + ROUNDING):
        why = release.get("unsure") or ("" if release["independent"] else ALIKE)
        return (Verdict.NOT_JUDGED, [why]) if why else (Verdict.SUPPORTED, [])
    if release["noise"] == "as claimed":  # by the configuration itself the claim is too small
        return Verdict.SUSPECT, []
    largest = "any size" if math.isinf(at_most) else f"up to {at_most:.3g}"
    return Verdict.NOT_JUDGED, [UNCERTAIN.format(largest)]


def _refutation(claim: Claimed, epsilon: float, whose: str) -> list[str]:
    if epsilon <= claim.epsilon:
        return []
    found = "infinite" if math.isinf(epsilon) else f"at least {epsilon:.3g}"
    return [f"is refuted: the epsilon {whose} is {found} ({ALARM_CONFIDENCE:.2%} confidence)"]
