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
from fedsim.audits.judgement import judge as judgement
from fedsim.audits.judgement.claim import Claim
from fedsim.audits.judgement.judge import Evidence, Finding
from fedsim.audits.recorded.client_noise import Reported
from fedsim.audits.recorded.noise_level import ALIKE
from fedsim.audits.recorded.transcript_findings import Measured
from fedsim.federation.transcripts.records import UNITS

Part = Mapping[str, Any]

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
class Recorded:
    """What a transcript gives to judge a claim by.

    Attributes:
        mechanism: as recorded; the last round that names a value counts.
        reported: epsilons that clients state of their own training, None if none does.
        missing: why rounds may be missing, "" if all are there.
        alarms: whether the report has an alarm, after which no claim is supported.
    """

    mechanism: Mapping[str, Any]
    measured: Measured
    reported: Reported | None
    missing: str
    alarms: bool


def judge(claim: Claim, recorded: Recorded, findings: list[Finding]) -> dict[str, Any]:
    """Return the claim with its verdict, and the reasons of one that is not judged.

    Args:
        findings: those of the report; what refutes the claim is appended as alarms.
    """
    unit = claim.unit or recorded.mechanism.get("unit")
    unit = unit if unit in UNITS else None
    other = RECORDS if recorded.measured.unit == "client" else CLIENTS
    refuted, evidence = list[str](), Evidence(incomparable=other)
    if unit is None and recorded.reported is not None:
        evidence = Evidence(incomparable=UNKNOWN_UNIT.format(recorded.reported.named))
    elif unit in (None, recorded.measured.unit):
        refuted, evidence = _of_updates(claim, unit, recorded)
    findings += [
        Finding(
            "alarm", "", f"the claim of epsilon {claim.epsilon:g} at delta {claim.delta:g} {text}"
        )
        for text in refuted
    ]
    found = judgement.judge(claim, evidence)
    return {
        "epsilon": claim.epsilon,
        "delta": claim.delta,
        "unit": unit,
        "verdict": found.verdict.value,
        "reasons": list(found.reasons),
    }


def _of_updates(claim: Claim, unit: str | None, recorded: Recorded) -> tuple[list[str], Evidence]:
    """Return what refutes a claim of whole updates, and all evidence about it."""
    release, canary = recorded.measured.release, recorded.measured.canary
    refuted, unjudged = [], []
    if canary is not None and unit is None and "clipping" not in recorded.mechanism:
        unjudged.append(CANARY_UNIT)
    elif canary is not None:
        unjudged.append(CANARIES)
        refuted += _refutation(claim, canary["proven"]["epsilon_all_rounds"], "that canaries found")
    filtered = recorded.measured.filtered
    if filtered is not None and "proven" in filtered:
        refuted += _refutation(claim, filtered["proven"]["epsilon"], "of the upload's noise")
    elif filtered is not None and "identified" in filtered:  # which no confidence speaks of
        refuted.append(UNBOUNDED_FILTER.format(filtered["filter"], filtered["identified"]["by"]))
    if release is None:
        unjudged += [] if canary is not None else [recorded.measured.unmeasured]
    elif why := _unjudgeable(release):
        unjudged.append(why)
    else:
        proven = release["proven"]
        node = proven["node"]
        whose = f"of a {recorded.measured.unit}" if node is None else f"of node {node}"
        refuted += _refutation(claim, proven["epsilon"], whose)
        return refuted, _of_release(claim, release, recorded, refuted=bool(refuted))
    return refuted, Evidence(refuted=bool(refuted), unknown=unjudged)


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


def _of_release(claim: Claim, release: Part, recorded: Recorded, refuted: bool) -> Evidence:
    missing = [f"{recorded.missing}, and the claim is of all rounds"] if recorded.missing else []
    at_most = release["proven"]["epsilon_at_most"]
    kept = claim.allows(at_most)
    if kept:
        unsure = release.get("unsure") or ("" if release["independent"] else ALIKE)
    else:
        largest = "any size" if math.isinf(at_most) else f"up to {at_most:.3g}"
        unsure = UNCERTAIN.format(largest)
    return Evidence(
        refuted=refuted,
        broken=recorded.alarms,
        unknown=missing,
        # By the configuration itself the claim is too small.
        exceeded=not kept and release["noise"] == "as claimed",
        unsure=[unsure] if unsure else [],
    )


def _refutation(claim: Claim, epsilon: float, whose: str) -> list[str]:
    if epsilon <= claim.epsilon:
        return []
    found = "infinite" if math.isinf(epsilon) else f"at least {epsilon:.3g}"
    return [f"is refuted: the epsilon {whose} is {found} ({ALARM_CONFIDENCE:.2%} confidence)"]
