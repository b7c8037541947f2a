"""The judge of every audit: what evidence says about a claim, and what decides first."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedsim.audits.judgement.claim import Claim
from fedsim.audits.judgement.verdict import Verdict


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
        verdict: on the claim.
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
