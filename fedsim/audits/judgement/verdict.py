"""What an audit concludes about a claim, and the exit status that says it: one scale for all."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """What the audit concludes about the claim.

    CONVICTED: it is proven, as surely as an alarm must be, that the claim is false
    SUSPECT: what was measured does not support the claim, and has not disproved it
    SUPPORTED: what was measured supports the claim, and nothing was found against it
    NOT_JUDGED: the audit cannot tell; its reasons are given, and what would let it tell
    NO_CLAIM: nobody claims anything
    """

    CONVICTED = "convicted"
    SUSPECT = "suspect"
    SUPPORTED = "supported"
    NOT_JUDGED = "not judged"
    NO_CLAIM = "no claim"


def stated(report: Mapping[str, Any]) -> list[str]:
    """Return what the report of a transcript says of the claim, in sentences; [] without one."""
    claim = report["claim"]
    if claim is None:
        return []
    why = f": {'; '.join(claim['reasons'])}" if claim["reasons"] else ""
    said = f"The claim of epsilon {claim['epsilon']:g} at delta {claim['delta']:g}"
    return [f"{said} is {IS[Verdict(claim['verdict'])]}{why}."]


IS = {
    Verdict.CONVICTED: "refuted",
    Verdict.SUSPECT: "not supported",
    Verdict.SUPPORTED: "supported",
    Verdict.NOT_JUDGED: "not judged",
}
"""Verdicts on a claim, in a sentence about it."""


STATUSES = {
    Verdict.SUPPORTED: 0,
    Verdict.NOT_JUDGED: 3,
    Verdict.SUSPECT: 4,
    Verdict.CONVICTED: 4,
}
"""Exit statuses of a claim. 1 and 2 are a failure's and bad input's: no accident is a verdict."""


def exit_status(verdict: Verdict, strict: bool) -> int:
    """Return the exit status of an audit: 0 only for a claim that is supported.

    Where nobody claims anything the report is all that was asked for, and the status 0.

    Args:
        strict: a claim was asked for, and an audit without one cannot tell.
    """
    unclaimed = STATUSES[Verdict.NOT_JUDGED] if strict else 0
    return STATUSES.get(verdict, unclaimed)
