"""Lower bounds on epsilon that hold with confidence, from T trials of the identification game.

worlds: bool [T], True where the model was trained on D; log_odds: float64 [T], the adversary's
final Lambda for D from even odds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import brentq
from scipy.stats import nct

from adversaries.design import INDEPENDENT, Design
from adversaries.intervals import clopper_pearson, significance
from adversaries.trials import Bools, Floats, check_trials
from fedsim.errors import InputError
from fedsim.gaussian import epsilon as gaussian_epsilon

LARGEST_EFFECT = 50.0
"""Standardised mean differences above this count as this: scipy's noncentral t soon diverges."""

RESOLUTION = 1e-12
"""A standard deviation below this share of the largest log-odds is rounding, not noise."""


@dataclass(frozen=True)
class LowerBound:
    """With probability at least `confidence`, no epsilon below this one is true at `delta`.

    `assumes` says when that holds; `trusts_noise`, whether the claimed noise entered. `details`
    holds the statistics behind the number. `reason` says why a bound of 0 says nothing, if it does.
    """

    epsilon: float
    delta: float
    confidence: float
    method: str
    assumes: str
    trusts_noise: bool
    details: dict[str, float] = field(default_factory=dict)
    reason: str | None = None


def clopper_pearson_bound(
    worlds: Bools, log_odds: Floats, delta: float, confidence: float
) -> LowerBound:
    """Return the bound that the rates of the decision Lambda > 0 prove.

    (epsilon, delta)-privacy forces TPR <= e^epsilon FPR + delta, and the same of TNR and FNR. With
    TPR no lower and FPR no higher than their limits at alpha/2 each, both hold at once, and
    epsilon is the larger logarithm (Jagielski et al., "Auditing differentially private machine
    learning", 2020, Algorithm 2 and Theorem 2; there delta = 0). The threshold was fixed before
    the trials; a tie decides D'. The trials of one world may depend on those of the other. Needs
    trials of both worlds, else 0 with the reason. Raises
    InputError unless 0 <= delta < 1, and as `advantage` does.
    """
    worlds, log_odds = check_trials(worlds, log_odds)
    if not 0 <= delta < 1:
        raise InputError(f"delta is {delta}; give a probability from 0 to below 1, such as 1e-5")
    decided = log_odds > 0
    true, false = decided[worlds], decided[~worlds]
    tpr = clopper_pearson(int(true.sum()), true.size, confidence).low
    fpr = clopper_pearson(int(false.sum()), false.size, confidence).high
    return LowerBound(
        epsilon=max(_log_ratio(tpr - delta, fpr), _log_ratio(1 - fpr - delta, 1 - tpr)),
        delta=delta,
        confidence=confidence,
        method="Clopper-Pearson limits of the true and false positive rates at the threshold 0",
        assumes="independent trials",
        trusts_noise=False,
        details={"true_positive_rate_low": tpr, "false_positive_rate_high": fpr},
        reason=None if true.size and false.size else "trials of one world only",
    )


def gaussian_bound(worlds: Bools, log_odds: Floats, delta: float, confidence: float) -> LowerBound:
    """Return the bound that the standardised difference of the two samples of log-odds proves.

    Under Gaussian noise Lambda | b ~ N(+-mu^2/2, mu^2), so the difference of the means over the
    common standard deviation is mu, whatever scale the adversary's claimed noise gave Lambda. The
    two-sample t statistic is noncentral t with noncentrality mu/sqrt(1/n1 + 1/n0); the mu at which
    it would be this large with probability alpha is the exact lower limit (Hedges, "Distribution
    theory for Glass's estimator of effect size", 1981), and epsilon(mu, delta) its conversion.

    Where the model cannot hold (fewer than two trials of a world, log-odds that are infinite or do
    not vary) the bound is 0 and `reason` says why. Raises InputError unless 0 < delta < 1, and as
    `advantage` does.
    """
    worlds, log_odds = check_trials(worlds, log_odds)
    alpha = significance(confidence)
    with_d, without = log_odds[worlds], log_odds[~worlds]
    reason = _not_gaussian(with_d, without)
    details = {} if reason else _standardised_difference(with_d, without, alpha)
    return LowerBound(
        epsilon=gaussian_epsilon(details.get("mu_low", 0.0), delta),
        delta=delta,
        confidence=confidence,
        method="noncentral t limit of the standardised difference between the worlds",
        assumes="independent trials, normal log-odds of one variance in both worlds",
        trusts_noise=False,
        details=details,
        reason=reason,
    )


LOWER_BOUNDS: dict[str, Callable[[Bools, Floats, float, float], LowerBound]] = {
    "clopper_pearson": clopper_pearson_bound,
    "gaussian": gaussian_bound,
}
"""Name -> function of (worlds, log_odds, delta, confidence)."""

NORMAL_LOG_ODDS = frozenset({"gaussian"})
"""The lower bounds that hold only for normal log-odds."""


DEPENDENT_WORLDS = frozenset({"clopper_pearson"})
"""The lower bounds that hold however the trials of one world depend on those of the other."""

COMMON = "the worlds share their random numbers, and the bound needs independent ones"
"""Why the others say nothing with common random numbers."""


def lower_bounds(
    worlds: Bools,
    log_odds: Floats,
    delta: float,
    confidence: float,
    not_normal: str | None = None,
    design: Design = INDEPENDENT,
) -> dict[str, LowerBound]:
    """Return every lower bound by its name.

    not_normal: why the log-odds are not normal, if so: the bounds that need it are 0 and give this
    as the reason. So are those that need independent worlds where the design has others; where the
    trials stopped at one look of several, each is computed at what that leaves. Raises InputError
    as the bounds do.
    """
    level = design.level(confidence)
    bounds = {
        name: replace(bound(worlds, log_odds, delta, level), confidence=confidence)
        for name, bound in LOWER_BOUNDS.items()
    }
    if design.common:
        for name in bounds.keys() - DEPENDENT_WORLDS:
            bounds[name] = replace(bounds[name], epsilon=0.0, details={}, reason=COMMON)
    if not_normal:
        for name in NORMAL_LOG_ODDS:
            bounds[name] = replace(bounds[name], epsilon=0.0, details={}, reason=not_normal)
    return bounds


def _log_ratio(numerator: float, denominator: float) -> float:
    return math.log(numerator / denominator) if numerator > denominator else 0.0


def _not_gaussian(with_d: Floats, without: Floats) -> str | None:
    if min(with_d.size, without.size) < 2:
        return "fewer than two trials of a world"
    both = np.concatenate([with_d, without])
    if not np.isfinite(both).all():
        return "infinite log-odds: a step without noise"
    if max(with_d.std(), without.std()) <= RESOLUTION * np.abs(both).max():
        return "log-odds that do not vary"
    return None


def _standardised_difference(with_d: Floats, without: Floats, alpha: float) -> dict[str, float]:
    """Return mu estimated by the standardised mean difference, its lower limit and freedom."""
    freedom = with_d.size + without.size - 2
    squares = with_d.size * with_d.var() + without.size * without.var()
    effect = float((with_d.mean() - without.mean()) / math.sqrt(squares / freedom))
    scale = math.sqrt(1 / with_d.size + 1 / without.size)
    # The limit grows with the statistic, so a smaller statistic keeps the bound valid.
    statistic = min(effect, LARGEST_EFFECT) / scale

    def excess(noncentrality: float) -> float:
        return float(nct.sf(statistic, freedom, noncentrality)) - alpha

    limit = 0.0
    if excess(0) < 0:
        high = max(1.0, statistic)
        while excess(high) < 0:
            high *= 2
        limit = brentq(excess, 0, high) * scale
    return {"mu": effect, "mu_low": limit, "degrees_of_freedom": freedom}
