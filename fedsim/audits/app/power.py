"""Which shortfall of the noise the audit of an app would have seen."""

import math

from adversaries.statistics import gaussian
from adversaries.statistics.intervals import ALARM_CONFIDENCE, significance
from fedsim.audits.app.configuration import Observation
from fedsim.audits.app.guarantee import Guarantee
from fedsim.audits.judgement.claim import Claim, Scope
from fedsim.audits.run import detectable


def by_watching(seen: Observation | None) -> float:
    """Return the share of the configured noise below which its size would have been objected to.

    In a round of the honest run, whose noise is measured on all parameters; 0 where it is not.
    """
    if seen is None or not seen.noise_ratios or seen.seeded:
        return 0.0
    tail = significance(ALARM_CONFIDENCE) / 2 / len(seen.noise_ratios)
    return detectable.by_energy(seen.noise_coordinates, tail)


def by_attack(
    guarantee: Guarantee | None, claim: Claim | None, with_update: int, without: int
) -> float:
    """Return the share of the noise of theory below which the attack would have convicted.

    By the Gaussian bound, one of two that judge together; 0 without a claim, and where theory does
    not know the noise.
    """
    if guarantee is None or claim is None or claim.epsilon <= 0 or 0 in guarantee.on_models:
        return 0.0
    whole = claim.scope is Scope.RUN
    rounds = guarantee.on_models if whole else (max(guarantee.on_models),)
    signal = math.sqrt(sum(z**-2 for z in rounds))
    limit = gaussian.mu_of_epsilon(claim.epsilon, claim.delta)
    tail = significance(ALARM_CONFIDENCE) / 2
    return detectable.by_separation(signal, limit, with_update, without, tail)
