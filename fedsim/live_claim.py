"""Whether what an auditor's node recorded supports the epsilon that somebody claims of the run.

The claim is of everything that the run released, all of its trials together. What supports it is
the noise that the server says, and that something measured was held against it: canaries, or
beliefs whose worlds were told.
"""

from collections.abc import Sequence
from typing import Any

from fedsim import cautions
from fedsim.accounting import PLD
from fedsim.app_audit.configuration import Claim
from fedsim.live_audit import LiveAudit
from fedsim.verdict import Verdict


def judge(
    audit: LiveAudit, claim: Claim, alarms: Sequence[str], measured: bool, ended: bool
) -> dict[str, Any]:
    """Return the claim with its verdict, and the reasons of one that is not supported.

    alarms: what contradicts the noise that the server says; measured: whether anything was held
    against that noise; ended: whether the run did.
    """
    verdict, reasons = _verdict(audit, claim, alarms, measured, ended)
    return {
        "epsilon": claim.epsilon,
        "delta": claim.delta,
        "unit": claim.unit,
        "verdict": verdict.value,
        "reasons": reasons,
    }


def _verdict(
    audit: LiveAudit, claim: Claim, alarms: Sequence[str], measured: bool, ended: bool
) -> tuple[Verdict, list[str]]:
    config, mechanism = audit.config, audit.everything()
    if config is None or mechanism is None:
        return Verdict.NOT_JUDGED, ["no round was seen from its beginning to its end"]
    if claim.unit not in (None, config.privacy.unit):
        own = config.privacy.unit
        return Verdict.NOT_JUDGED, [f"the claim is of a {claim.unit}, the run protects a {own}"]
    against = [*alarms, *cautions.dp_failings(config)]
    epsilon = PLD.epsilon(mechanism, claim.delta)
    if epsilon > claim.epsilon:
        against.append(f"the noise that the server says allows epsilon {epsilon:.4g}")
    if against:
        return Verdict.SUSPECT, against
    lacking = []
    if not ended:
        lacking.append("the transcript does not say that the run has ended")
    if audit.trials < config.trials.count:
        lacking.append(f"{audit.trials} of {config.trials.count} trials were seen")
    if not measured:
        lacking.append(
            "nothing was held against the noise that the server says; give --canary-seed-file, or "
            "--worlds after the run"
        )
    return (Verdict.NOT_JUDGED, lacking) if lacking else (Verdict.SUPPORTED, [])
