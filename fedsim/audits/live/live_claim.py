"""Whether what an auditor's node recorded supports the epsilon that somebody claims of the run.

The claim is of everything that the run released, all of its trials together. What supports it is
the noise that the server says, and that something which could have contradicted it was measured
(`fedsim.audits.live.live_power`): canaries, or beliefs whose worlds were told.
"""

from collections.abc import Sequence
from typing import Any

from fedsim.audits.judgement import judge as judgement
from fedsim.audits.judgement.claim import Claim
from fedsim.audits.judgement.judge import Evidence
from fedsim.audits.live.live_audit import LiveAudit
from fedsim.audits.run import cautions
from fedsim.privacy.accounting import PLD


def judge(
    audit: LiveAudit,
    claim: Claim,
    alarms: Sequence[str],
    unmeasured: Sequence[str],
    reported: int | None,
    ended: bool,
) -> dict[str, Any]:
    """Return the claim with its verdict, and the reasons of one that is not supported.

    Args:
        unmeasured: why nothing could have, empty where something could.
        reported: how many trials whoever ran the federation reported; None before that.
        ended: whether the run did.
    """
    incomparable = _incomparable(audit, claim)
    against = [] if incomparable else [*alarms, *_against(audit, claim)]
    lacking = [] if incomparable else [*_unseen(audit, reported, ended), *unmeasured]
    evidence = Evidence(
        incomparable=incomparable, exceeded=bool(against), against=against, unsure=lacking
    )
    found = judgement.judge(claim, evidence)
    return {
        "epsilon": claim.epsilon,
        "delta": claim.delta,
        "unit": claim.unit,
        "verdict": found.verdict.value,
        "reasons": list(found.reasons),
    }


def _incomparable(audit: LiveAudit, claim: Claim) -> str:
    """Return why the claim cannot be held against what was seen, empty if it can."""
    if audit.config is None or audit.everything() is None:
        return "no round was seen from its beginning to its end"
    unit = audit.config.privacy.unit
    if claim.unit not in (None, unit):
        return f"the claim is of a {claim.unit}, the run protects a {unit}"
    return ""


def _against(audit: LiveAudit, claim: Claim) -> list[str]:
    """Return what the configuration itself says against the claim."""
    mechanism = audit.everything()
    assert audit.config is not None and mechanism is not None
    reasons = cautions.dp_failings(audit.config)
    epsilon = PLD.epsilon(mechanism, claim.delta)
    if not claim.allows(epsilon):
        reasons.append(f"the noise that the server says allows epsilon {epsilon:.4g}")
    return reasons


def _unseen(audit: LiveAudit, reported: int | None, ended: bool) -> list[str]:
    """Return what of the run was not seen."""
    assert audit.config is not None
    missing = [] if ended else ["the transcript does not say that the run has ended"]
    trials = audit.config.trials
    planned = reported or trials.count
    if audit.trials < planned and reported is None and trials.until_halfwidth:
        missing.append(
            f"{audit.trials} trials were seen of a run that may stop before its {planned} "
            "(trials.until-halfwidth), so that only --worlds says whether these are all"
        )
    elif audit.trials < planned:
        missing.append(f"{audit.trials} of {planned} trials were seen")
    return missing
