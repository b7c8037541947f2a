"""Lower bounds on epsilon from the shape of two samples of log-odds that are normal.

Under Gaussian noise Lambda | b ~ N(+-mu^2/2, mu^2), so that the difference of the means over the
standard deviation is mu, whatever scale the adversary's claimed noise gave Lambda. Whether the
samples look normal is checked first; where they do not, the bounds give a reason and no number.
"""

import math
from dataclasses import replace

import numpy as np
from scipy.special import log_ndtr

from adversaries.statistics.gaussian import epsilon as gaussian_epsilon
from adversaries.statistics.intervals import LowerBound, significance
from adversaries.statistics.noncentral import lower_limit
from adversaries.statistics.trials import Bools, Floats, check_trials

LARGEST_EFFECT = 50.0
"""Standardised mean differences above this count as this: `noncentral` resolves no larger ones."""

RESOLUTION = 1e-12
"""A standard deviation below this share of the largest log-odds is rounding, not noise."""

NORMALITY_LEVEL = 0.01
"""How often two normal samples are refused; half of it goes to each world."""

LEAST_CHECKED = 8
"""Trials of a world below which no departure from normality could show."""

LARGEST_ERROR = 0.39
"""An alpha above this counts as this: so far the proof of the unequal bound reaches."""

ALIKE = 1e-6
"""Relative differences of mu up to this are single precision, not sensitivities that vary."""

LARGEST_SHARE = 0.05
"""Of their standard deviation, how far log-odds may be from normal before no bound rests on it."""

NOT_NORMAL = "the log-odds do not look normal (Anderson-Darling)"

TOO_MIXED = "the sensitivities vary too much for worlds so far apart to have nearly normal log-odds"


def gaussian_bound(worlds: Bools, log_odds: Floats, delta: float, confidence: float) -> LowerBound:
    """Return the bound that the standardised difference of the two samples of log-odds proves.

    The two-sample t statistic is noncentral t with noncentrality mu/sqrt(1/n1 + 1/n0); the mu at
    which it would be this large with probability alpha is the exact lower limit, and epsilon(mu,
    delta) its conversion. The check of normality depends on the samples' shapes alone, which for
    normal samples are independent of their means and variances (Basu): it only makes the bound
    rarer.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D, at any scale.
        delta: of the guarantee that is bounded, in (0, 1).
        confidence: in (0, 1).

    Returns:
        The bound; 0 with the `reason` where the model cannot hold: fewer than two trials of a
        world, log-odds that are infinite, do not vary or do not look normal.

    Raises:
        InputError: unless 0 < delta < 1; as of `estimators.advantage`.

    Source:
        Hedges, "Distribution theory for Glass's estimator of effect size", 1981.
    """
    worlds, log_odds = check_trials(worlds, log_odds)
    alpha = significance(confidence)
    with_d, without = log_odds[worlds], log_odds[~worlds]
    reason = _not_gaussian(with_d, without, least=2)
    details = {} if reason else _pooled(with_d, without, alpha)
    if not reason:
        details["normality_p_value"] = normality(with_d, without)
        reason = _refused(details)
    return LowerBound(
        epsilon=gaussian_epsilon(0.0 if reason else details["mu_low"], delta),
        delta=delta,
        confidence=confidence,
        method="noncentral t limit of the standardised difference between the worlds",
        assumes="independent trials, normal log-odds of one variance in both worlds",
        trusts_noise=False,
        details=details,
        reason=reason,
    )


def gaussian_unequal_bound(
    worlds: Bools, log_odds: Floats, delta: float, confidence: float
) -> LowerBound:
    """Return the bound that the two samples prove if they are normal, whatever their variances.

    What is bounded is r = (m1 - m0)/max(s1, s0). Log-odds N(m1, s1^2) against N(m0, s0^2) tell the
    worlds apart at least as well as those of Gaussian privacy r do: if s1 is the larger, take
    thresholds above m0 and accuse D, where FPR = Phi(-t/s0) <= Phi(-t/s1); if s0 is, thresholds
    below m1, and accuse D'. The best threshold of equal variances is such a one for every epsilon
    >= 0, so that epsilon(r, delta) is a lower bound.

    For each world b, (mean1 - mean0)/sd_b is taken as noncentral t of n_b - 1 degrees of freedom
    with noncentrality r_b/sqrt(1/n1 + 1/n0), and the smaller limit counts. If world b has the
    larger variance the limit of r_b = r is conservative: the difference of the means then varies by
    at most s_b sqrt(1/n1 + 1/n0), and as the chi distribution leans to the right of its mode, the
    chance of so large a statistic grows with that while it is below 0.39. The smaller of two limits
    is above r only if that one is, so that nothing is paid for looking at both.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D, at any scale.
        delta: of the guarantee that is bounded, in (0, 1).
        confidence: in (0, 1).

    Returns:
        The bound; 0 with the `reason` as of `gaussian_bound`, but three trials of each world are
        needed.

    Raises:
        InputError: as of `gaussian_bound`.
    """
    worlds, log_odds = check_trials(worlds, log_odds)
    alpha = min(significance(confidence), LARGEST_ERROR)
    with_d, without = log_odds[worlds], log_odds[~worlds]
    reason = _not_gaussian(with_d, without, least=3)
    details = {}
    if not reason:
        scale = math.sqrt(1 / with_d.size + 1 / without.size)
        difference = float(with_d.mean() - without.mean())
        ratios, limits = [], []
        for sample in (with_d, without):
            spread = max(float(sample.std(ddof=1)), RESOLUTION * float(np.abs(sample).max()))
            ratios.append(difference / spread if spread else LARGEST_EFFECT)
            limits.append(_limit(ratios[-1], scale, sample.size - 1, alpha))
        details = {
            "mu": min(ratios),
            "mu_low": min(limits),
            "normality_p_value": normality(with_d, without),
        }
        reason = _refused(details)
    return LowerBound(
        epsilon=gaussian_epsilon(0.0 if reason else details["mu_low"], delta),
        delta=delta,
        confidence=confidence,
        method="noncentral t limit of the difference between the worlds over the larger standard "
        "deviation",
        assumes="independent trials, normal log-odds",
        trusts_noise=False,
        details=details,
        reason=reason,
    )


def mixed_share(trial_mu: Floats, mu: float) -> float:
    """Return how far log-odds are from normal at most, as a share of their standard deviation.

    A gradient that is not clipped depends on the noise before it: one that the model has learnt is
    hardly noticed any more, and the tails of the log-odds are cut. One more step of mu r_t, r_t^2 =
    mu^2 - mu_t^2, of noise of its own would bring every trial to the largest mu, and its log-odds
    to exactly N(+-mu^2/2, mu^2). What that step adds has the mean square E[r^2 + r^4/4]; its share
    grows with mu.

    Args:
        trial_mu: float64 [T], sqrt(sum_i (LS_i/sigma_i)^2) of every trial, as realised, up to a
            factor of all.
        mu: the largest of them in truth, >= 0.

    Returns:
        The share, >= 0; 0 where all trials are alike, and where one is infinite or all are zero:
        such log-odds the bounds refuse.
    """
    largest = float(trial_mu.max())
    if not 0 < largest < math.inf or np.allclose(trial_mu, largest, rtol=ALIKE, atol=0):
        return 0.0
    lacking = 1 - (trial_mu / largest) ** 2
    return math.sqrt(float(np.mean(lacking + mu**2 * lacking**2 / 4)))


def lessened(bound: LowerBound, trial_mu: Floats, delta: float) -> LowerBound:
    """Return a bound of normal log-odds for those of trials with these mu, see `mixed_share`.

    Their means lie no further apart than those of the normal ones, and their standard deviation is
    at least 1 - share of theirs (Minkowski), so that mu is overstated by 1/(1 - share) at most. How
    the studentised difference scatters about that is taken to be as of normal log-odds, which is
    why a share above `LARGEST_SHARE` is refused.

    The share is taken at the limit of mu itself, whatever noise was claimed: were the true mu below
    what is left, it would be below the limit, its share the smaller and what that share leaves the
    larger.

    Args:
        bound: from normal log-odds, with "mu_low" in its details; one that was refused is returned
            as it is.
        trial_mu: float64 [T], as of `mixed_share`.
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
        method=f"{bound.method}, lessened by {share:.1%} because sensitivities vary",
        assumes=f"{bound.assumes.replace('normal', 'approximately normal')}; sensitivities as "
        "recorded and noise as claimed, up to one scale of all",
        details=bound.details | {"mu_low": mu, "mixed_share": share},
    )


def normality(with_d: Floats, without: Floats) -> float:
    """Return the p-value of both samples being normal, of whatever means and variances.

    Twice the smaller of Anderson and Darling's in either world, with mean and variance estimated.

    Args:
        with_d: float64 [n1], the log-odds of trials on D; fewer than `LEAST_CHECKED` say nothing.
        without: float64 [n0], of trials on D'; likewise.

    Source:
        Stephens's modified statistic and its p-value, in D'Agostino and Stephens, "Goodness-of-fit
        techniques", 1986, Table 4.9.
    """
    return min(1.0, 2 * min(_anderson_darling(with_d), _anderson_darling(without)))


def _anderson_darling(sample: Floats) -> float:
    n = sample.size
    spread = sample.std(ddof=1) if n >= LEAST_CHECKED else 0.0
    if spread <= RESOLUTION * np.abs(sample).max(initial=0.0):
        return 1.0  # nothing to see; whether log-odds vary is another question
    z = np.sort((sample - sample.mean()) / spread)
    weights = 2 * np.arange(1, n + 1) - 1
    statistic = -n - float(weights @ (log_ndtr(z) + log_ndtr(-z[::-1]))) / n
    a = min(statistic * (1 + 0.75 / n + 2.25 / n**2), 100.0)
    if a >= 0.6:
        return math.exp(1.2937 - 5.709 * a + 0.0186 * a**2)
    if a >= 0.34:
        return math.exp(0.9177 - 4.279 * a - 1.38 * a**2)
    if a >= 0.2:
        return -math.expm1(-8.318 + 42.796 * a - 59.938 * a**2)
    return -math.expm1(-13.436 + 101.14 * a - 223.73 * a**2)


def _not_gaussian(with_d: Floats, without: Floats, least: int) -> str | None:
    if min(with_d.size, without.size) < least:
        return f"fewer than {'two' if least == 2 else 'three'} trials of a world"
    both = np.concatenate([with_d, without])
    if not np.isfinite(both).all():
        return "infinite log-odds: a step without noise"
    if max(with_d.std(), without.std()) <= RESOLUTION * np.abs(both).max():
        return "log-odds that do not vary"
    return None


def _refused(details: dict[str, float]) -> str | None:
    return NOT_NORMAL if details["normality_p_value"] < NORMALITY_LEVEL else None


def _pooled(with_d: Floats, without: Floats, alpha: float) -> dict[str, float]:
    """Return mu estimated by the standardised mean difference, its lower limit and freedom."""
    freedom = with_d.size + without.size - 2
    squares = with_d.size * with_d.var() + without.size * without.var()
    effect = float((with_d.mean() - without.mean()) / math.sqrt(squares / freedom))
    scale = math.sqrt(1 / with_d.size + 1 / without.size)
    limit = _limit(effect, scale, freedom, alpha)
    return {"mu": effect, "mu_low": limit, "degrees_of_freedom": freedom}


def _limit(effect: float, scale: float, freedom: int, alpha: float) -> float:
    """Return the mu >= 0 at which so large an effect has probability alpha; 0 where there is none.

    effect/scale is noncentral t with noncentrality mu/scale.
    """
    # The limit grows with the statistic, so a smaller statistic keeps the bound valid.
    return lower_limit(min(effect, LARGEST_EFFECT) / scale, freedom, alpha) * scale
