"""What an audit concludes about a claim: one scale for apps, transcripts and live audits."""

from enum import StrEnum


class Verdict(StrEnum):
    """What the audit concludes about the claim.

    CONVICTED: it is proven, with `adversaries.intervals.ALARM_CONFIDENCE`, that the claim is false
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
