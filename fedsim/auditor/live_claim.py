"""Whether what an auditor's node recorded supports the epsilon that somebody claims of the run.

The claim is of everything that the run released, all of its trials together. What supports it is
the noise that the server says, and that something which could have contradicted it was measured
(`fedsim.live_power`): canaries, or beliefs whose worlds were told.
"""

from collections.abc import Sequence
from typing import Any

from fedsim import cautions
from fedsim.accounting import PLD
from fedsim.app_audit.configuration import Claim
from fedsim.live_audit import LiveAudit
from fedsim.verdict import Verdict


def judge(
    audit: LiveAudit,
    claim: Claim,
    alarms: Sequence[str],
    unmeasured: Sequence[str],
    told: int | None,
    ended: bool,
) -> dict[str, Any]:
    """Return the claim with its verdict, and the reasons of one that is not supported.

    alarms: what contradicts the noise that the server says; unmeasured: why nothing could have,
    empty where something could; told: how many trials whoever ran the federation told of, None
    before that; ended: whether the run did.
    """
    verdict, reasons = _verdict(audit, claim, alarms, unmeasured, told, ended)
    return {
        "epsilon": claim.epsilon,
        "delta": claim.delta,
        "unit": claim.unit,
        "verdict": verdict.value,
        "reasons": reasons,
    }


def _verdict(
    audit: LiveAudit,
    claim: Claim,
    alarms: Sequence[str],
    unmeasured: Sequence[str],
    told: int | None,
    ended: bool,
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
    planned = told or config.trials.count
    if audit.trials < planned and told is None and config.trials.until_halfwidth:
        lacking.append(
            f"{audit.trials} trials were seen of a run that may stop before its {planned} "
            "(trials.until-halfwidth), so that only --worlds says whether these are all"
        )
    elif audit.trials < planned:
        lacking.append(f"{audit.trials} of {planned} trials were seen")
    lacking += unmeasured
    return (Verdict.NOT_JUDGED, lacking) if lacking else (Verdict.SUPPORTED, [])
