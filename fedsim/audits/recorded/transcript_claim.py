"""The verdict on a claimed epsilon of all rounds of a transcript.

A transcript measures the noise on whole updates. A claim about those is refuted with the confidence
of an alarm. It is supported by the measured noise, at the low end of its interval, or by the
configured noise if the measurement does not contradict it. A claim about records is not judged, nor
one about noise that was added before the recorder; the report says why, and what would let it be.
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
    "it is about a record of a client's data, and a transcript measures what is learnt about a "
    "client's whole update"
)
CLIENTS = (
    "it is about a client's whole update, and the noise of this recorded training loop protects a "
    "record"
)
UNKNOWN_UNIT = (
    "clients report an epsilon of their own ({}), so that it may be about their records, which a "
    "transcript does not measure; if it is about a client's whole update, state that: "
    'record(..., unit="client"), or the claimed unit client'
)
NOISE_ELSEWHERE = (
    "no noise is added after the updates were sent, and noise that clients add before is part of "
    "the recorded updates. If they add noise, record a client: recording_mod(local_dp=...), or "
    "canary_mod"
)
UNBOUNDED = (
    "no clipping norm was recorded, without which noise gives no guarantee; declare it: "
    "record(..., clipping_norm=...)"
)
UNKNOWN_COUNT = (
    "adaptive clipping also releases a count of clipped updates, and no noise on it was recorded"
)
HIDDEN = "the configured noise is so small that rounding hides whether it was added"
CANARY_UNIT = (
    "canaries measure what is learnt about a client's whole update as training returns it, and the "
    "claim does not state that it is about that; if it is, set the claimed unit client"
)
CANARIES = "canaries may disprove a claim, but cannot support it; record at the server as well"
UNCERTAIN = (
    "the measured noise allows an epsilon of {}; more rounds would measure it more exactly, and "
    "configured noise would be compared with it"
)

UNBOUNDED_FILTER = "is refuted: the epsilon of {} is infinite by {}"


@dataclass(frozen=True)
class Recorded:
    """What a transcript contributes to the verdict on a claim.

    Attributes:
        mechanism: as recorded; the last round that names a value counts.
        reported: epsilons of the clients' own training; None if no client reports one.
        missing: why rounds may be missing, "" if none are.
        alarms: whether the report has an alarm, after which no claim is supported.
    """

    mechanism: Mapping[str, Any]
    measured: Measured
    reported: Reported | None
    missing: str
    alarms: bool


def judge(claim: Claim, recorded: Recorded, findings: list[Finding]) -> dict[str, Any]:
    """Return the claim with its verdict, and the reasons if it is not judged.

    findings: findings of the report; refutations of the claim are appended as alarms.
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
    judged = judgement.judge(claim, evidence)
    return {
        "epsilon": claim.epsilon,
        "delta": claim.delta,
        "unit": unit,
        "verdict": judged.verdict.value,
        "reasons": list(judged.reasons),
    }


def _of_updates(claim: Claim, unit: str | None, recorded: Recorded) -> tuple[list[str], Evidence]:
    """Return the refutations of a claim about whole updates, and all evidence on it."""
    release, canary = recorded.measured.release, recorded.measured.canary
    refuted, unjudged = [], []
    if canary is not None and unit is None and "clipping" not in recorded.mechanism:
        unjudged.append(CANARY_UNIT)
    elif canary is not None:
        unjudged.append(CANARIES)
        refuted += _refutation(claim, canary["proven"]["epsilon_all_rounds"], "by canaries")
    filtered = recorded.measured.filtered
    if filtered is not None and "proven" in filtered:
        refuted += _refutation(claim, filtered["proven"]["epsilon"], "of the upload's noise")
    elif filtered is not None and "identified" in filtered:  # known by its code, not measured
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
    """Return why a release cannot judge a claim; "" if it can."""
    claimed = None not in release["claimed_std"] and 0 not in release["claimed_std"]
    if release["noise"] == "none":
        return "" if claimed else NOISE_ELSEWHERE
    if release["noise"] == "hidden":
        return HIDDEN
    if not release["clipped"]:
        return UNBOUNDED
    return "" if release["count_known"] else UNKNOWN_COUNT


def _of_release(claim: Claim, release: Part, recorded: Recorded, refuted: bool) -> Evidence:
    missing = [f"{recorded.missing}, and the claim is about all rounds"] if recorded.missing else []
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
        # The configuration itself contradicts the claim.
        exceeded=not kept and release["noise"] == "as claimed",
        unsure=[unsure] if unsure else [],
    )


def _refutation(claim: Claim, epsilon: float, whose: str) -> list[str]:
    if epsilon <= claim.epsilon:
        return []
    value = "infinite" if math.isinf(epsilon) else f"at least {epsilon:.3g}"
    return [f"is refuted: the epsilon {whose} is {value} ({ALARM_CONFIDENCE:.2%} confidence)"]
