"""The judge of every audit: what it finds, what evidence says about a claim, what decides first."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from fedsim.audits.judgement.claim import Claim


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


Severity = Literal["alarm", "caution", "note"]


@dataclass(frozen=True)
class Finding:
    """One objection of an audit.

    Attributes:
        severity: "alarm" for a guarantee that is weaker than the configuration says, "caution" for
            a doubt, "note" for advice.
        rule: the name of the rule that objects; "" for a measurement without a named rule.
        why: what is wrong, with the numbers of this audit; without a full stop.
        mend: what to change; "" where the audit cannot say.
        rounds: the rounds that it is about; () for all.
    """

    severity: Severity
    rule: str
    why: str
    mend: str = ""
    rounds: tuple[int, ...] = ()

    @property
    def breaks(self) -> bool:
        """Whether the guarantee is weaker than the configuration says."""
        return self.severity == "alarm"

    def as_json(self) -> dict[str, Any]:
        """Return the finding as report.json has it."""
        return vars(self) | {"rounds": list(self.rounds)}


def alarms(findings: Iterable[Finding]) -> int:
    """Return how many findings are alarms."""
    return sum(each.breaks for each in findings)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What an audit knows about a claim.

    Each audit translates its own findings into these fields. Theory and measurements may each be
    silent: then the field keeps its default.

    Attributes:
        incomparable: why the claim speaks of something that the audit does not measure; "" if it
            speaks of what was measured.
        refuted: whether the claim is disproved, with the confidence of an alarm.
        broken: whether an alarm, or a broken rule, leaves no guarantee to rely on.
        unknown: why there is no epsilon to compare with the claim.
        exceeded: whether theory's epsilon is above the claimed one.
        unsure: why an epsilon that keeps the claim does not yet support it.
        against: what speaks against a claim that is not disproved, in sentences.
    """

    incomparable: str = ""
    refuted: bool = False
    broken: bool = False
    unknown: Sequence[str] = ()
    exceeded: bool = False
    unsure: Sequence[str] = ()
    against: Sequence[str] = ()


@dataclass(frozen=True)
class Judgement:
    """A verdict on a claim, and its reasons.

    Attributes:
        reasons: why the claim is not judged, or what speaks against it; () where the report's
            findings and numbers say so.
    """

    verdict: Verdict
    reasons: tuple[str, ...] = ()


def judge(claim: Claim | None, evidence: Evidence) -> Judgement:
    """Return the verdict on a claim: the first line that applies decides.

    Args:
        claim: None where nobody claims anything.
    """
    precedence = (
        (claim is None, Verdict.NO_CLAIM, ()),
        (evidence.incomparable, Verdict.NOT_JUDGED, (evidence.incomparable,)),
        (evidence.refuted, Verdict.CONVICTED, ()),
        (evidence.broken, Verdict.SUSPECT, evidence.against),
        (evidence.unknown, Verdict.NOT_JUDGED, evidence.unknown),
        (evidence.exceeded, Verdict.SUSPECT, evidence.against),
        (evidence.unsure, Verdict.NOT_JUDGED, evidence.unsure),
        (True, Verdict.SUPPORTED, ()),
    )
    return next(
        Judgement(verdict, tuple(reasons)) for applies, verdict, reasons in precedence if applies
    )
