"""Lower bounds on epsilon from the error rates of deciding D where Lambda > 0, and their model."""

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betainc, betaincinv, ndtr, ndtri

from adversaries.arrays import Bools, Floats
from adversaries.bounds.e_process import Accusations
from adversaries.statistics.gaussian import epsilon as gaussian_epsilon
from adversaries.statistics.intervals import EpsilonBound, binomial_high, check_delta, significance
from adversaries.statistics.roots import find_root

REACH = 8.0
"""Standard deviations of a posterior beyond which its probability is below 1e-15."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(64)

LARGEST_EPSILON = 700.0
"""The largest epsilon whose exponential is finite."""


@dataclass(frozen=True)
class NoiseFamily:
    """A mechanism at every scale of its noise.

    Attributes:
        scales: considered scales, ascending and fixed in advance; 1 is the claimed noise.
        miss_rate: (scale, false positive rate) -> a lower bound on the false negative rate that the
            mechanism allows; never falls as the scale grows, up to rounding.
        epsilon: (scale, delta) -> the guarantee of the mechanism.
    """

    scales: Sequence[float]
    miss_rate: Callable[[float, float], float]
    epsilon: Callable[[float, float], float]


def _highest(counts: Accusations, confidence: float) -> tuple[float, float]:
    """Return upper limits of FPR and FNR that hold together, each at alpha/2."""
    # Half of the error for each rate, so that both limits hold together (Bonferroni).
    tail = significance(confidence) / 2
    misses = counts.on_d - counts.true
    return (
        float(binomial_high(counts.false, counts.others, tail)),
        float(binomial_high(misses, counts.on_d, tail)),
    )


def jeffreys_bound(
    worlds: Bools, log_odds: Floats, delta: float, confidence: float
) -> EpsilonBound:
    """Return the epsilon that the rates of a rule exceed with posterior probability `confidence`.

    FPR and FNR have independent Jeffreys priors Beta(1/2, 1/2), so that the posterior is a product
    of two beta distributions. (epsilon, delta)-privacy confines the rates to

        FPR + e^epsilon FNR >= 1 - delta,  e^epsilon FPR + FNR >= 1 - delta.

    The bound is the epsilon whose region has the posterior probability 1 - confidence. The paper's
    region has a second side, which is not used: it was fixed in advance which answer accuses D.

    The bound is credible, not a confidence bound: it is right with this probability on average over
    the prior, but not for rates at the region's very corner.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D, or any score that decides D above 0.
        delta: in [0, 1).
        confidence: posterior probability, in (0, 1).

    Returns: the bound; 0 with the `reason` without trials of both worlds.
    Raises InputError for delta or confidence out of range, or for trials that `check_trials`
    refuses. Source: Zanella-Béguelin et al., "Bayesian estimation of differential privacy", 2023,
    Section 4.
    """
    check_delta(delta)
    significance(confidence)
    counts = Accusations.of(worlds, log_odds)

    def excess(epsilon: float) -> float:
        return _probability_above(epsilon, counts, delta) - confidence

    epsilon = 0.0
    if not counts.reason and excess(0.0) > 0:
        high = 1.0
        # The posterior probability above epsilon falls with epsilon: double until it is crossed,
        # then search in between.
        while excess(high) > 0 and high < LARGEST_EPSILON:
            high = min(2 * high, LARGEST_EPSILON)
        epsilon = high if excess(high) > 0 else find_root(excess, 0.0, high, xtol=1e-9)
    return EpsilonBound(
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


def mu_gdp_bound(worlds: Bools, log_odds: Floats, delta: float, confidence: float) -> EpsilonBound:
    """Return the bound that the rates of the decision Lambda > 0 prove for a Gaussian mechanism.

    mu-Gaussian privacy forces Phi^-1(1 - FPR) - Phi^-1(FNR) <= mu. FPR and FNR each have their
    Clopper-Pearson limit at alpha/2. The bound holds for every mechanism that composes to a
    Gaussian one, like full batches, at any scale of its noise.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D, or any score that decides D above 0.
        delta: in (0, 1).
        confidence: in (0, 1).

    Returns: the bound; 0 with the `reason` without trials of both worlds.
    Raises InputError for delta or confidence out of range, or for trials that `check_trials`
    refuses. Source: Nasr et al., "Tight auditing of differentially private machine learning", 2023,
    Section 4.
    """
    counts = Accusations.of(worlds, log_odds)
    false, missed = _highest(counts, confidence)
    # At the largest FPR and FNR, Phi^-1(1 - FPR) - Phi^-1(FNR) is smallest, so it is a lower limit
    # of mu.
    mu = max(0.0, float(-ndtri(false) - ndtri(missed)))
    return EpsilonBound(
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
) -> EpsilonBound:
    """Return the bound that the rates of the decision Lambda > 0 prove for a family of mechanisms.

    A noise scale is refuted if FNR's Clopper-Pearson limit at alpha/2 is less than the mechanism
    allows at FPR's limit, and all larger scales with it.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D, or any score that decides D above 0.
        delta: in (0, 1).
        confidence: in (0, 1).
        family: the mechanism at every scale of its noise that is considered.

    Returns: the bound; 0 where no scale is refuted, or with the `reason` without trials of both
    worlds.
    Raises InputError for delta or confidence out of range, or for trials that `check_trials`
    refuses.
    """
    counts = Accusations.of(worlds, log_odds)
    false, missed = _highest(counts, confidence)

    def refuted(scale: float) -> bool:
        return family.miss_rate(scale, false) > missed

    # A mechanism with more noise than the last scale counts as perfectly private.
    least = len(family.scales)
    # More noise forces more errors. So all scales above a refuted one are refuted too, and
    # bisection finds the first. Error rates of guessing, which add up to 1 or more, refute nothing.
    if not counts.reason and false + missed < 1:
        least = bisect.bisect_left(family.scales, True, key=refuted)
    scale = family.scales[least] if least < len(family.scales) else math.inf
    details = {"false_positive_rate_high": false, "false_negative_rate_high": missed}
    if math.isfinite(scale):
        details["noise_scale_high"] = scale
    return EpsilonBound(
        epsilon=family.epsilon(scale, delta) if math.isfinite(scale) else 0.0,
        delta=delta,
        confidence=confidence,
        method="the noise whose trade-off curve still allows the Clopper-Pearson limits of the "
        "false positive and negative rates at the threshold 0",
        assumes="independent trials, the claimed mechanism, up to one scale for all its noise",
        trusts_noise=False,
        details=details,
        reason=counts.reason,
    )


def _probability_above(epsilon: float, counts: Accusations, delta: float) -> float:
    """Return the posterior probability that the rates lie outside the region of epsilon."""
    # The posterior of FPR: Beta(1/2, 1/2) plus the counts.
    a, b = counts.false + 0.5, counts.others - counts.false + 0.5
    grown = math.exp(epsilon)
    # Below this FPR the second inequality is the stricter one, above it the first. The integrand
    # has a kink here, so the quadrature runs on each side by itself.
    corner = float(ndtri(betainc(a, b, (1 - delta) / (1 + grown))))
    total = 0.0
    corner = min(max(corner, -REACH), REACH)
    for low, high in ((-REACH, corner), (corner, REACH)):
        # FPR at its posterior's quantiles Phi(deviation).
        deviation = (low + high) / 2 + (high - low) / 2 * NODES
        false = betaincinv(a, b, ndtr(deviation))
        # The least FNR inside the region at this FPR. A smaller one lies outside.
        allowed = np.maximum(1 - delta - grown * false, (1 - delta - false) / grown)
        below = betainc(
            counts.on_d - counts.true + 0.5, counts.true + 0.5, np.clip(allowed, 0.0, 1.0)
        )
        density = np.exp(-(deviation**2) / 2) / math.sqrt(2 * math.pi)
        total += float(WEIGHTS @ (below * density)) * (high - low) / 2
    return total
