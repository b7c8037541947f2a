"""The report of an audit: what the gate, the exit status and the Python API read of every kind."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedsim.audits.judgement.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """What an audit of a federation or a training loop concludes.

    Attributes:
        verdict: on the claim.
        reasons: why, or why it cannot tell.
        epsilon: what the noise gives the least protected client or record at delta: as measured in
            a recorded transcript, as configured in an app or a loop, as the server says it to an
            auditor's node. Infinite without noise, None where unknown.
        proven: an epsilon that is exceeded as surely as a conviction takes; None where unmeasured.
        delta: at which both are stated; None where an auditor's node has seen no round.
        report: what `fedsim audit … --json` prints; of a transcript, infinity is a number here.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    epsilon: float | None
    proven: float | None
    delta: float | None
    report: Mapping[str, Any] = field(repr=False)


def of_transcript(
    report: Mapping[str, Any], epsilon: float | None, proven: float | None
) -> AuditReport:
    """Return the conclusion on a transcript.

    Args:
        report: of it, with its claim.
        epsilon: by the noise that was measured, or that the server says; None where unknown.
        proven: that is exceeded as surely as a conviction takes; None where unmeasured.
    """
    claim = report["claim"]
    return AuditReport(
        verdict=Verdict.NO_CLAIM if claim is None else Verdict(claim["verdict"]),
        reasons=() if claim is None else tuple(claim["reasons"]),
        epsilon=epsilon,
        proven=proven,
        delta=report["delta"],
        report=report,
    )
