"""The noise that an audit of a loop would have convicted, by what the loop returns.

The attack adds up k returned rows. In each, the target stands out by 1/z of the noise, so that
mu = sqrt(k)/z. A claim is convicted where the rates of right and wrong decisions exceed what it
allows. `needed` is the mu at which this happens in 95 % of audits, and sqrt(k)/needed is the noise
multiplier that is then convicted. This is the best case: a target whose gradient turns from step to
step stands out less.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import binom, norm

from adversaries.statistics import gaussian
from adversaries.statistics.intervals import ALARM_CONFIDENCE, binomial_high, binomial_low
from fedsim.audits.judgement.claim import Claim
from fedsim.audits.loop.measurement import FULL, Learnt
from fedsim.privacy.mechanism import Neighbouring, sensitivity

POWER = 0.95
"""Probability that an audit convicts noise as small as it states."""

LARGEST = 50.0
"""Largest mu considered; above it all trials are won."""

LARGEST_EPSILON = 700.0
"""Largest epsilon with a finite exponential; no number of trials convicts it."""

THRESHOLDS = np.linspace(-6.0, 12.0, 181)
"""Thresholds of the score, in standard deviations above the mean without the target."""


@dataclass(frozen=True)
class Power:
    """What an audit could detect.

    Attributes:
        learnt: the loop's releases, as pilots learnt them.
        apart: distance of the judged runs' worlds by all steps, in standard deviations.
        needed: distance for a conviction in 95 % of audits; inf where no distance would do.
        multiplier: noise multiplier of a row below which the claim is convicted; 0 for none.
        of_steps: share of the noise that the claim needs, below which an audit convicts that has
            the sums of all steps, with the target in each; 0 for none.
    """

    learnt: Learnt
    apart: float
    needed: float
    multiplier: float
    of_steps: float

    @property
    def share(self) -> float:
        """Share of the loop's noise below which it would have been convicted."""
        return min(1.0, self.apart / self.needed)

    def as_json(self) -> dict[str, Any]:
        """Return the values, with None for an infinite distance."""
        needed = self.needed if math.isfinite(self.needed) else None
        return asdict(self) | {"needed": needed, "share": self.share, "seen_with": POWER}


def power(
    learnt: Learnt, apart: float, trials: int, claim: Claim, neighbouring: Neighbouring
) -> Power:
    """Return what an audit of `trials` judged runs could detect in a loop without observed noise.

    claim: about the whole run.
    """
    needed = least_apart(trials, claim.epsilon, claim.delta)
    multiplier = of_steps = 0.0
    if math.isfinite(needed):
        rate = 1.0 if learnt.rate >= FULL else learnt.rate
        # Central limit theorem of sampled Gaussian steps, as in `Direction.distance`.
        squared = (needed / rate) ** 2 / learnt.rows
        z = 1 / math.sqrt(squared if rate == 1 else math.log1p(squared))
        multiplier = z * sensitivity(neighbouring, 1.0)
        limit = gaussian.mu_of_epsilon(claim.epsilon, claim.delta)
        of_steps = min(1.0, limit / needed)
    return Power(learnt, apart, needed, multiplier, of_steps)


def least_apart(trials: int, epsilon: float, delta: float) -> float:
    """Return the smallest mu at which counting convicts a claim in `POWER` of audits; inf for none.

    The scores of the worlds are normal and mu apart, and the threshold is the best one. Each rate
    is at a quantile of its count, so that both hold with probability `POWER`.

    Args:
        trials: judged runs, half of them in each world.
    """
    if not _convicts(LARGEST, trials, epsilon, delta):
        return math.inf
    low, high = 0.0, LARGEST
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if _convicts(middle, trials, epsilon, delta) else (middle, high)
    return high


def _convicts(mu: float, trials: int, epsilon: float, delta: float) -> bool:
    with_it, without = (trials + 1) // 2, trials // 2
    miss, tail = (1 - POWER) / 2, (1 - ALARM_CONFIDENCE) / 4  # two bounds, each of two rates
    true = binom.ppf(miss, with_it, norm.sf(THRESHOLDS - mu))
    false = binom.ppf(1 - miss, without, norm.sf(THRESHOLDS))
    right, wrong = binomial_low(true, with_it, tail), binomial_high(false, without, tail)
    limit = math.exp(min(epsilon, LARGEST_EPSILON))
    above = (right - delta > limit * wrong) | (1 - wrong - delta > limit * (1 - right))
    return bool(above.any())
