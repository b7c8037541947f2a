"""Lower bounds on epsilon from the error rates of deciding D where Lambda > 0, and a model of them.

The rates are counted, whatever the decision rests on; what is assumed of the mechanism says which
epsilon such rates need.
"""

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainc, betaincinv, ndtr, ndtri

from adversaries.statistics.gaussian import epsilon as gaussian_epsilon
from adversaries.statistics.intervals import LowerBound, binomial_high, check_delta, significance
from adversaries.statistics.trials import ONE_WORLD, Bools, Floats, check_trials

REACH = 8.0
"""Standard deviations of a posterior outside of which lies less than 1e-15 of it."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(64)

LARGEST_EPSILON = 700.0
"""The largest epsilon whose exponential is a number."""


@dataclass(frozen=True)
class NoiseFamily:
    """Mechanisms that are alike but for the scale of their noise.

    Attributes:
        scales: those considered, ascending and fixed in advance; 1 is the noise that was claimed.
        miss_rate: (scale, false positive rate) -> the least false negative rate that the mechanism
            leaves possible, or less; does not fall as the scale grows, but for rounding.
        epsilon: (scale, delta) -> what the mechanism guarantees.
    """

    scales: Sequence[float]
    miss_rate: Callable[[float, float], float]
    epsilon: Callable[[float, float], float]


@dataclass(frozen=True)
class _Counts:
    true: int
    on_d: int
    false: int
    others: int

    @classmethod
    def of(cls, worlds: Bools, log_odds: Floats) -> "_Counts":
        worlds, log_odds = check_trials(worlds, log_odds)
        true, false = log_odds[worlds] > 0, log_odds[~worlds] > 0
        return cls(int(true.sum()), true.size, int(false.sum()), false.size)

    @property
    def reason(self) -> str | None:
        return None if self.on_d and self.others else ONE_WORLD

    def highest(self, confidence: float) -> tuple[float, float]:
        """Return upper limits of FPR and FNR that hold together; each pays half of alpha."""
        tail = significance(confidence) / 2
        misses = self.on_d - self.true
        return (
            float(binomial_high(self.false, self.others, tail)),
            float(binomial_high(misses, self.on_d, tail)),
        )


def jeffreys_bound(worlds: Bools, log_odds: Floats, delta: float, confidence: float) -> LowerBound:
    """Return the epsilon that the rates of a rule exceed with posterior probability `confidence`.

    FPR and FNR have independent Jeffreys priors Beta(1/2, 1/2), so that the posterior is a product
    of two beta distributions. (epsilon, delta)-privacy confines the rates to

        FPR + e^epsilon FNR >= 1 - delta,  e^epsilon FPR + FNR >= 1 - delta,

    and the bound is the epsilon whose region has the posterior probability 1 - confidence. Of the
    region that the paper draws only the side of the attack is used, because which answer accuses D
    was fixed before. The probability is one integral over the quantiles of FPR, by Gauss and
    Legendre's rule on either side of the region's corner.

    Credible, not confidence: it is right that often on average over the prior, and near to that for
    rates inside the region, but not for rates at its very corner.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D, or any score that decides D above 0.
        delta: in [0, 1).
        confidence: posterior probability, in (0, 1).

    Returns:
        The bound; 0 with the `reason` without trials of both worlds.

    Raises:
        InputError: unless 0 <= delta < 1; as of `estimators.advantage`.

    Source:
        Zanella-Béguelin et al., "Bayesian estimation of differential privacy", 2023, Section 4.
    """
    check_delta(delta)
    significance(confidence)
    counts = _Counts.of(worlds, log_odds)

    def excess(epsilon: float) -> float:
        return _probability_above(epsilon, counts, delta) - confidence

    epsilon = 0.0
    if not counts.reason and excess(0.0) > 0:
        high = 1.0
        while excess(high) > 0 and high < LARGEST_EPSILON:
            high = min(2 * high, LARGEST_EPSILON)
        epsilon = high if excess(high) > 0 else brentq(excess, 0.0, high, xtol=1e-9)
    return LowerBound(
        epsilon=epsilon,
        delta=delta,
        confidence=confidence,
        method="joint posterior of the false positive and negative rates at the threshold 0",
        assumes="independent trials; rates with Jeffreys priors",
        trusts_noise=False,
        details={
            "false_positive_rate": (counts.false + 0.5) / (counts.others + 1),
            "false_negative_rate": (counts.on_d - counts.true + 0.5) / (counts.on_d + 1),
        },
        reason=counts.reason,
        kind="credible",
    )


def mu_gdp_bound(worlds: Bools, log_odds: Floats, delta: float, confidence: float) -> LowerBound:
    """Return the bound that the rates of the decision Lambda > 0 prove of a Gaussian mechanism.

    mu-Gaussian privacy forces Phi^-1(1 - FPR) - Phi^-1(FNR) <= mu. FPR and FNR each take their own
    Clopper-Pearson limit at alpha/2, and epsilon(mu, delta) converts. A Gaussian trade-off curve is
    its own inverse, so that accusing D and accusing D' prove the same mu. Holds of whatever
    composes to a Gaussian mechanism, as full batches do, at any scale of its noise.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D, or any score that decides D above 0.
        delta: in (0, 1).
        confidence: in (0, 1).

    Returns:
        The bound; 0 with the `reason` without trials of both worlds.

    Raises:
        InputError: unless 0 < delta < 1; as of `estimators.advantage`.

    Source:
        Nasr et al., "Tight auditing of differentially private machine learning", 2023, Section 4.
    """
    counts = _Counts.of(worlds, log_odds)
    false, missed = counts.highest(confidence)
    mu = max(0.0, float(-ndtri(false) - ndtri(missed)))
    return LowerBound(
        epsilon=gaussian_epsilon(mu, delta),
        delta=delta,
        confidence=confidence,
        method="mu of Gaussian privacy from Clopper-Pearson limits of the false positive and "
        "negative rates at the threshold 0",
        assumes="independent trials, a mechanism that composes to a Gaussian one",
        trusts_noise=False,
        details={
            "mu_low": mu,
            "false_positive_rate_high": false,
            "false_negative_rate_high": missed,
        },
        reason=counts.reason,
    )


def trade_off_bound(
    worlds: Bools, log_odds: Floats, delta: float, confidence: float, family: NoiseFamily
) -> LowerBound:
    """Return the bound that the rates of the decision Lambda > 0 prove of a family of mechanisms.

    With FPR and FNR no higher than their Clopper-Pearson limits at alpha/2 each, a scale of the
    noise at which even FNR's limit is less than the mechanism allows at FPR's is refuted, and all
    larger scales with it. The noise is less than the least refuted scale, whose epsilon is the
    bound.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D, or any score that decides D above 0.
        delta: in (0, 1).
        confidence: in (0, 1).
        family: the mechanism at every scale of its noise that is considered.

    Returns:
        The bound; 0 where no scale is refuted, and with the `reason` without trials of both worlds.

    Raises:
        InputError: as of `estimators.advantage` and of the family's epsilon.
    """
    counts = _Counts.of(worlds, log_odds)
    false, missed = counts.highest(confidence)

    def refuted(scale: float) -> bool:
        return family.miss_rate(scale, false) > missed

    # Scales beyond the last are not considered: they stand for no privacy loss at all.
    least = len(family.scales)
    if not counts.reason and false + missed < 1:
        least = bisect.bisect_left(family.scales, True, key=refuted)
    found = family.scales[least] if least < len(family.scales) else math.inf
    details = {"false_positive_rate_high": false, "false_negative_rate_high": missed}
    if math.isfinite(found):
        details["noise_scale_high"] = found
    return LowerBound(
        epsilon=family.epsilon(found, delta) if math.isfinite(found) else 0.0,
        delta=delta,
        confidence=confidence,
        method="the noise whose trade-off curve still allows the Clopper-Pearson limits of the "
        "false positive and negative rates at the threshold 0",
        assumes="independent trials, the claimed mechanism up to one scale of all its noise",
        trusts_noise=False,
        details=details,
        reason=counts.reason,
    )


def _probability_above(epsilon: float, counts: _Counts, delta: float) -> float:
    """Return the posterior probability that the rates lie outside of the region of epsilon."""
    a, b = counts.false + 0.5, counts.others - counts.false + 0.5
    grown = math.exp(epsilon)
    corner = float(ndtri(betainc(a, b, (1 - delta) / (1 + grown))))
    total = 0.0
    corner = min(max(corner, -REACH), REACH)
    for low, high in ((-REACH, corner), (corner, REACH)):
        # FPR at its posterior's quantiles Phi(deviation).
        deviation = (low + high) / 2 + (high - low) / 2 * NODES
        false = betaincinv(a, b, ndtr(deviation))
        allowed = np.maximum(1 - delta - grown * false, (1 - delta - false) / grown)
        below = betainc(
            counts.on_d - counts.true + 0.5, counts.true + 0.5, np.clip(allowed, 0.0, 1.0)
        )
        density = np.exp(-(deviation**2) / 2) / math.sqrt(2 * math.pi)
        total += float(WEIGHTS @ (below * density)) * (high - low) / 2
    return total
