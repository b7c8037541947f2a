"""Lower bounds on epsilon from two samples of log-odds that are normal.

Under Gaussian noise Lambda | b ~ N(+-mu^2/2, mu^2), so the difference of the means over the
standard deviation is mu, at any claimed noise. A test first checks that the samples look normal.
"""

import math
from dataclasses import replace

import numpy as np
from scipy.special import log_ndtr

from adversaries.arrays import Bools, Floats
from adversaries.statistics.gaussian import epsilon as gaussian_epsilon
from adversaries.statistics.intervals import EpsilonBound, significance
from adversaries.statistics.noncentral import lower_limit
from adversaries.statistics.trials import check_trials

LARGEST_EFFECT = 50.0
"""Largest standardised mean difference that `noncentral` resolves; larger ones count as this."""

RESOLUTION = 1e-12
"""A standard deviation below this share of the largest log-odds is rounding, not noise."""

NORMALITY_LEVEL = 0.01
"""Probability that two normal samples are refused; half of it for each world."""

LEAST_CHECKED = 8
"""Fewest trials of a world in which a departure from normality can show."""

ALIKE = 1e-6
"""Relative differences of mu up to this are rounding in single precision."""

LARGEST_SHARE = 0.05
"""Largest distance of log-odds from normal, as a share of their standard deviation, for a bound."""

NOT_NORMAL = "the log-odds do not look normal (Anderson-Darling)"

TOO_MIXED = "the sensitivities vary so much that log-odds this far apart need not be nearly normal"


def gaussian_bound(
    worlds: Bools, log_odds: Floats, delta: float, confidence: float
) -> EpsilonBound:
    """Return the bound that the standardised difference of the two samples of log-odds proves.

    The two-sample t statistic is noncentral t with noncentrality mu/sqrt(1/n1 + 1/n0). The exact
    lower limit is the mu at which a statistic this large has probability alpha. The check of
    normality uses only the samples' shapes, which for normal samples are independent of their means
    and variances (Basu): it only makes the bound rarer.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D, at any scale.
        delta: of the guarantee that is bounded, in (0, 1).
        confidence: in (0, 1).

    Returns: the bound; 0 with the `reason` where the model cannot hold: fewer than two trials of a
    world, or log-odds that are infinite, equal or do not look normal.
    Raises InputError for delta or confidence out of range, or for trials that `check_trials`
    refuses. Source: Hedges, "Distribution theory for Glass's estimator of effect size", 1981.
    """
    worlds, log_odds = check_trials(worlds, log_odds)
    alpha = significance(confidence)
    with_d, without = log_odds[worlds], log_odds[~worlds]
    reason = _not_gaussian(with_d, without)
    details: dict[str, float] = {}
    if not reason:
        freedom = with_d.size + without.size - 2
        # The pooled variance: both worlds have the same noise under the model.
        squares = with_d.size * with_d.var() + without.size * without.var()
        effect = float((with_d.mean() - without.mean()) / math.sqrt(squares / freedom))
        scale = math.sqrt(1 / with_d.size + 1 / without.size)
        limit = _limit(effect, scale, freedom, alpha)
        details = {"mu": effect, "mu_low": limit, "degrees_of_freedom": freedom}
        details["normality_p_value"] = normality(with_d, without)
        reason = _refused(details)
    return EpsilonBound(
        epsilon=gaussian_epsilon(0.0 if reason else details["mu_low"], delta),
        delta=delta,
        confidence=confidence,
        method="noncentral t limit of the standardised difference between trials on D and on D'",
        assumes="independent trials, normal log-odds of equal variance on D and on D'",
        details=details,
        reason=reason,
    )


def mixed_share(trial_mu: Floats, mu: float) -> float:
    """Return how far log-odds can be from normal, as a share of their standard deviation.

    One more step of mu r_t, r_t^2 = mu^2 - mu_t^2, with independent noise, would bring every trial
    to the largest mu, and its log-odds to exactly N(+-mu^2/2, mu^2). That step adds the mean square
    E[r^2 + r^4/4]; its share grows with mu.

    Args:
        trial_mu: float64 [T], realised sqrt(sum_i (LS_i/sigma_i)^2), up to a common factor.
        mu: the true value of the largest, >= 0.

    Returns: the share, >= 0; 0 where all trials are equal, or mu is infinite or all zero.
    """
    largest = float(trial_mu.max())
    if not 0 < largest < math.inf or np.allclose(trial_mu, largest, rtol=ALIKE, atol=0):
        return 0.0
    # The share of the squared mu that each trial lacks to the largest one.
    lacking = 1 - (trial_mu / largest) ** 2
    return math.sqrt(float(np.mean(lacking + mu**2 * lacking**2 / 4)))


def lessened(bound: EpsilonBound, trial_mu: Floats, delta: float) -> EpsilonBound:
    """Return a bound for normal log-odds, reduced for trials whose mu varies (`mixed_share`).

    The means of these log-odds lie no further apart than normal ones, and their standard deviation
    is at least 1 - share of the normal one (Minkowski), so mu is overstated by at most 1/(1 -
    share). A share above `LARGEST_SHARE` is refused, as the difference may scatter otherwise.

    The share is taken at the limit of mu, whatever noise was claimed; a smaller true mu has a
    smaller share.

    Args:
        bound: from normal log-odds, with "mu_low" in its details; unchanged if it has a reason.
        trial_mu: float64 [T], realised sqrt(sum_i (LS_i/sigma_i)^2), up to a common factor.
        delta: of the guarantee that is bounded, in (0, 1).
    """
    share = mixed_share(trial_mu, bound.details.get("mu_low", 0.0))
    if bound.reason or not share:
        return bound
    if share > LARGEST_SHARE:
        return replace(bound, epsilon=0.0, details={}, reason=TOO_MIXED)
    mu = bound.details["mu_low"] * (1 - share)
    return replace(
        bound,
        epsilon=gaussian_epsilon(mu, delta),
        method=f"{bound.method}, reduced by {share:.1%} because sensitivities vary",
        assumes=f"{bound.assumes.replace('normal', 'approximately normal')}; sensitivities as "
        "recorded and noise as claimed, up to one scale for all",
        details=bound.details | {"mu_low": mu, "mixed_share": share},
    )


def normality(with_d: Floats, without: Floats) -> float:
    """Return the p-value that both samples are normal, with any means and variances.

    Args:
        with_d: float64 [n1], log-odds of trials on D; fewer than `LEAST_CHECKED` give 1.
        without: float64 [n0], log-odds of trials on D'; fewer than `LEAST_CHECKED` give 1.

    Source: Stephens's modified statistic and its p-value, in D'Agostino and Stephens,
    "Goodness-of-fit techniques", 1986, Table 4.9.
    """
    return min(1.0, 2 * min(_anderson_darling(with_d), _anderson_darling(without)))


def _anderson_darling(sample: Floats) -> float:
    n = sample.size
    spread = sample.std(ddof=1) if n >= LEAST_CHECKED else 0.0
    if spread <= RESOLUTION * np.abs(sample).max(initial=0.0):
        return 1.0  # too few, or they do not vary, which another check refuses
    z = np.sort((sample - sample.mean()) / spread)
    # The statistic with estimated mean and variance, its correction for n, and its p-value.
    weights = 2 * np.arange(1, n + 1) - 1
    # log(1 - Phi(z)) as log Phi(-z), which keeps its digits in the upper tail.
    statistic = -n - float(weights @ (log_ndtr(z) + log_ndtr(-z[::-1]))) / n
    # The quadratic formula below would rise again for larger values. At the cap the p-value is
    # practically 0.
    a = min(statistic * (1 + 0.75 / n + 2.25 / n**2), 100.0)
    if a >= 0.6:
        return math.exp(1.2937 - 5.709 * a + 0.0186 * a**2)
    if a >= 0.34:
        return math.exp(0.9177 - 4.279 * a - 1.38 * a**2)
    if a >= 0.2:
        return -math.expm1(-8.318 + 42.796 * a - 59.938 * a**2)
    return -math.expm1(-13.436 + 101.14 * a - 223.73 * a**2)


def _not_gaussian(with_d: Floats, without: Floats) -> str | None:
    if min(with_d.size, without.size) < 2:
        return "fewer than two trials of a world"
    both = np.concatenate([with_d, without])
    if not np.isfinite(both).all():
        return "infinite log-odds: a step without noise"
    if max(with_d.std(), without.std()) <= RESOLUTION * np.abs(both).max():
        return "log-odds that do not vary"
    return None


def _refused(details: dict[str, float]) -> str | None:
    return NOT_NORMAL if details["normality_p_value"] < NORMALITY_LEVEL else None


def _limit(effect: float, scale: float, freedom: int, alpha: float) -> float:
    """Return the mu >= 0 at which so large an effect has probability alpha; 0 if there is none."""
    # The limit grows with the statistic, so a smaller statistic keeps the bound valid.
    return lower_limit(min(effect, LARGEST_EFFECT) / scale, freedom, alpha) * scale
