"""Whether a transcript supports the epsilon that somebody claims of all of its rounds.

What refutes the claim is proven with the confidence of every alarm. What supports it is the noise
that was measured, at the low end of its interval; where noise was configured and the measured one
does not contradict it, the configured. Where neither holds, the audit cannot tell, and says why.
"""

import math
from collections.abc import Mapping
from typing import Any

from adversaries.intervals import ALARM_CONFIDENCE
from fedsim.verdict import Verdict

Part = Mapping[str, Any]

ROUNDING = 1e-6
"""Relative excess of an epsilon over the claim that is rounding."""


def judge(
    claimed: float,
    delta: float,
    release: Part | None,
    canary: Part | None,
    findings: list[dict[str, Any]],
    missing: str,
) -> dict[str, Any]:
    """Return the claim with its verdict, and the reasons of one that is not judged.

    release, canary, findings: as in the report, with infinity as it is; what refutes the claim is
    appended to the findings. missing: why rounds may be missing, "" if none are.
    """
    refuted = _refutations(claimed, delta, release, canary)
    alarmed = any(finding["severity"] == "alarm" for finding in findings)
    findings += [{"severity": "alarm", "text": text, "rounds": []} for text in refuted]
    verdict, reasons = Verdict.CONVICTED, list[str]()
    if not refuted:
        verdict, reasons = _supported(claimed, release, alarmed, missing)
    return {"epsilon": claimed, "delta": delta, "verdict": verdict.value, "reasons": reasons}


def _refutations(
    claimed: float, delta: float, release: Part | None, canary: Part | None
) -> list[str]:
    measured = []
    if release is not None:
        proven = release["proven"]
        measured.append((proven["epsilon"], f"of node {proven['node']}"))
    if canary is not None:
        measured.append((canary["proven"]["epsilon_all_rounds"], "that canaries measured"))
    return [
        f"the claim of epsilon {claimed:g} at delta {delta:g} is refuted: the epsilon {whose} is "
        f"{'infinite' if math.isinf(epsilon) else f'at least {epsilon:.3g}'} "
        f"({ALARM_CONFIDENCE:.1%} confidence)"
        for epsilon, whose in measured
        if epsilon > claimed
    ]


def _supported(
    claimed: float, release: Part | None, alarmed: bool, missing: str
) -> tuple[Verdict, list[str]]:
    """Return the verdict on a claim that nothing refutes, and why it is not judged."""
    if alarmed:
        return Verdict.SUSPECT, []
    if release is None:
        return Verdict.NOT_JUDGED, [NO_RELEASE]
    if missing:
        return Verdict.NOT_JUDGED, [f"{missing}, and the claim is of all rounds"]
    at_most = release["proven"]["epsilon_at_most"]
    if at_most <= claimed * (1 + ROUNDING):
        return Verdict.SUPPORTED, []
    if release["noise"] == "as claimed":  # by the configuration itself the claim is too small
        return Verdict.SUSPECT, []
    largest = "any size" if math.isinf(at_most) else f"up to {at_most:.3g}"
    return Verdict.NOT_JUDGED, [UNCERTAIN.format(largest)]


NO_RELEASE = (
    "what was recorded measures at most a lower bound of epsilon, which supports no claim; record "
    "at the server, or a local mechanism with recording_mod(local_dp=...)"
)
UNCERTAIN = (
    "the noise that was measured allows an epsilon of {}; more rounds would measure it more "
    "exactly, and configured noise would be held against it"
)
