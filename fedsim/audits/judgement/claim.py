"""Claims of differential privacy and their judge: findings, evidence and verdicts of all audits."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from adversaries.errors import InputError
from fedsim.privacy.trust import Vantage

ROUNDING = 1e-6
"""Relative excess of a computed epsilon over a claimed one that every audit takes as rounding."""


@dataclass(frozen=True)
class Claim:
    """A statement that all that a run releases is (epsilon, delta)-private.

    Attributes:
        source: author of the claim, as the report names it.
        vantage: observer that it protects against. None: the configuration decides.
        unit: protected unit. "client": a client's whole update, as its training returns it.
            "record": one record of a client's data. None: unstated.

    Raises:
        InputError: epsilon or delta is outside its range.
    """

    epsilon: float
    delta: float
    source: str = "given"
    vantage: Vantage | None = None
    unit: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < math.inf:
            raise InputError(f"The claimed epsilon is {self.epsilon}; it must be at least 0.")
        if not 0 < self.delta < 1:
            raise InputError(f"The claimed delta is {self.delta}; it must be above 0 and below 1.")

    def allows(self, epsilon: float) -> bool:
        return epsilon <= self.epsilon * (1 + ROUNDING)


def claim_given(epsilon: float | None, delta: float | None, unit: str | None) -> Claim | None:
    if epsilon is None and delta is None and unit is None:
        return None
    if epsilon is None or delta is None:
        raise InputError("A claim needs both the claimed epsilon and the claimed delta.")
    return Claim(epsilon, delta, unit=unit)


class Verdict(StrEnum):
    """Verdict of an audit on a claim.

    CONVICTED: the claim is proven false, with the confidence of an alarm
    SUSPECT: the measurements do not support the claim, and have not disproved it
    SUPPORTED: the measurements support the claim, and no finding speaks against it
    NOT_JUDGED: the audit cannot tell; the reasons say why, and what would let it tell
    NO_CLAIM: no claim was stated
    """

    CONVICTED = "convicted"
    SUSPECT = "suspect"
    SUPPORTED = "supported"
    NOT_JUDGED = "not judged"
    NO_CLAIM = "no claim"


IS = {
    Verdict.CONVICTED: "refuted",
    Verdict.SUSPECT: "not supported",
    Verdict.SUPPORTED: "supported",
    Verdict.NOT_JUDGED: "not judged",
}


STATUSES = {Verdict.SUPPORTED: 0, Verdict.NOT_JUDGED: 3, Verdict.SUSPECT: 4, Verdict.CONVICTED: 4}
"""Exit statuses of a claim. 1 is a failure and 2 bad input, so that no accident is a verdict."""


def exit_status(verdict: Verdict, strict: bool, alarms: int = 0) -> int:
    """Return the exit status of an audit: 0 for a supported claim, or where no claim is needed.

    Args:
        strict: the user asked for a judgement: an audit without a claim then cannot tell.
        alarms: without a claim, they contradict what was configured or declared.
    """
    unclaimed = STATUSES[Verdict.NOT_JUDGED] if strict else 0
    if alarms and verdict is Verdict.NO_CLAIM:
        return STATUSES[Verdict.CONVICTED]
    return STATUSES.get(verdict, unclaimed)


Severity = Literal["alarm", "caution", "note"]


@dataclass(frozen=True)
class Finding:
    """One objection of an audit.

    Attributes:
        why: the fault, with the numbers of this audit; without a full stop.
        severity: "alarm": the guarantee is weaker than the configuration says. "caution": a doubt.
            "note": advice.
        rule: name of the rule that objects; "" for a measurement without a named rule.
        rounds: rounds of the fault; () for all.
    """

    why: str
    mend: str = ""
    severity: Severity = "alarm"
    rule: str = ""
    rounds: tuple[int, ...] = ()

    @property
    def breaks(self) -> bool:
        return self.severity == "alarm"

    @property
    def sentence(self) -> str:
        """The objection as a sentence, with its first rounds."""
        numbers = ", ".join(map(str, self.rounds[:8])) + ", ..." * (len(self.rounds) > 8)
        where = f" (round {numbers})" if self.rounds else ""
        return f"{self.why[:1].upper()}{self.why[1:]}{where}."


def alarms(findings: Iterable[Finding]) -> int:
    return sum(each.breaks for each in findings)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Findings of an audit, in the terms of a claim.

    Each audit translates its findings into these fields. A field keeps its default where theory or
    the measurements do not speak about it.
    Attributes:
        incomparable: why the audit did not measure what the claim speaks of; "" if it did.
        proven: lower bound on epsilon at the claim's delta, at the confidence of an alarm.
        broken: whether an alarm or a broken rule leaves no guarantee to rely on.
        unknown: why there is no epsilon to compare with the claim.
        unsure: why an epsilon within the claim does not yet support it.
        against: evidence against a claim that is not disproved, in sentences.
        in_favour: what a supported claim rests on, also what the audit did not see.
    """

    incomparable: str = ""
    proven: float = 0.0
    broken: bool = False
    unknown: Sequence[str] = ()
    exceeded: bool = False
    unsure: Sequence[str] = ()
    against: Sequence[str] = ()
    in_favour: Sequence[str] = ()


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    reasons: tuple[str, ...] = ()


TO_CLAIM = "To have a claim judged, add --claimed-epsilon and --claimed-delta."


def judge(claim: Claim | None, evidence: Evidence) -> Judgement:
    """Return the verdict on a claim; None is no claim. The first line that applies decides."""
    refuted = claim is not None and evidence.proven > claim.epsilon
    precedence = (
        (claim is None, Verdict.NO_CLAIM, ()),
        (evidence.incomparable, Verdict.NOT_JUDGED, (evidence.incomparable,)),
        (refuted, Verdict.CONVICTED, ()),
        (evidence.broken, Verdict.SUSPECT, evidence.against),
        (evidence.unknown, Verdict.NOT_JUDGED, evidence.unknown),
        (evidence.exceeded, Verdict.SUSPECT, evidence.against),
        (evidence.unsure, Verdict.NOT_JUDGED, evidence.unsure),
        (True, Verdict.SUPPORTED, evidence.in_favour),
    )
    return next(
        Judgement(verdict, tuple(reasons)) for applies, verdict, reasons in precedence if applies
    )
