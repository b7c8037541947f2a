"""Lower bounds on epsilon that hold with confidence, from T trials of the identification game.

worlds: bool [T], True where the model was trained on D; log_odds: float64 [T], the adversary's
final Lambda for D from even odds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.stats import nct

from adversaries.intervals import (
    LowerBound,
    binomial_high,
    binomial_low,
    clopper_pearson,
    significance,
)
from adversaries.trials import Bools, Floats, check_trials
from fedsim.errors import InputError
from fedsim.gaussian import epsilon as gaussian_epsilon

CANDIDATES = 512
"""Thresholds among which half of the trials choose, at most; more are thinned evenly."""

ONE_WORLD = "trials of one world only"

LARGEST_EFFECT = 50.0
"""Standardised mean differences above this count as this: scipy's noncentral t soon diverges."""

RESOLUTION = 1e-12
"""A standard deviation below this share of the largest log-odds is rounding, not noise."""


def clopper_pearson_bound(
    worlds: Bools, log_odds: Floats, delta: float, confidence: float, threshold: float = 0.0
) -> LowerBound:
    """Return the bound that the rates of the decision Lambda > threshold prove.

    (epsilon, delta)-privacy forces TPR <= e^epsilon FPR + delta, and the same of TNR and FNR. With
    TPR no lower and FPR no higher than their limits at alpha/2 each, both hold at once, and
    epsilon is the larger logarithm (Jagielski et al., "Auditing differentially private machine
    learning", 2020, Algorithm 2 and Theorem 2; there delta = 0). The threshold was fixed before
    the trials; a tie decides D'. Needs trials of both worlds, else 0 with the reason. Raises
    InputError unless 0 <= delta < 1, and as `advantage` does.
    """
    worlds, log_odds = check_trials(worlds, log_odds)
    _check_delta(delta)
    decided = log_odds > threshold
    true, false = decided[worlds], decided[~worlds]
    tpr = clopper_pearson(int(true.sum()), true.size, confidence).low
    fpr = clopper_pearson(int(false.sum()), false.size, confidence).high
    return LowerBound(
        epsilon=max(_log_ratio(tpr - delta, fpr), _log_ratio(1 - fpr - delta, 1 - tpr)),
        delta=delta,
        confidence=confidence,
        method="Clopper-Pearson limits of the true and false positive rates at the threshold "
        f"{threshold:g}",
        assumes="independent trials",
        trusts_noise=False,
        details={"true_positive_rate_low": tpr, "false_positive_rate_high": fpr},
        reason=None if true.size and false.size else ONE_WORLD,
    )


def clopper_pearson_split(
    worlds: Bools, scores: Floats, delta: float, confidence: float
) -> LowerBound:
    """Return the bound at the threshold that looks best on half of the trials, from the other half.

    Of each world every second trial, in their order, chooses; the others, which had no part in the
    choice, give the bound as `clopper_pearson_bound` does. Any score will do, of any scale and with
    any number of ties: larger speaks for D. The threshold itself decides D'. Needs two trials of
    each world, else 0 with the reason. Raises InputError as `clopper_pearson_bound` does.
    """
    worlds, scores = check_trials(worlds, scores)
    _check_delta(delta)
    tail = significance(confidence) / 2
    with_d, without = scores[worlds], scores[~worlds]
    thresholds = np.unique(np.concatenate([with_d[::2], without[::2]]))
    if thresholds.size > CANDIDATES:
        thresholds = thresholds[np.linspace(0, thresholds.size - 1, CANDIDATES).astype(int)]
    on_choice = _at_thresholds(with_d[::2], without[::2], thresholds, delta, tail)
    threshold = thresholds[np.argmax(on_choice.epsilon)]
    found = _at_thresholds(with_d[1::2], without[1::2], threshold[None], delta, tail)
    return LowerBound(
        epsilon=float(found.epsilon[0]),
        delta=delta,
        confidence=confidence,
        method="Clopper-Pearson limits of the true and false positive rates on half of the trials "
        "at a threshold chosen on the other half",
        assumes="independent trials",
        trusts_noise=False,
        details=found.details(0) | {"threshold": float(threshold)},
        reason=_too_few(with_d, without, 2),
    )


def clopper_pearson_bonferroni(
    worlds: Bools, scores: Floats, delta: float, confidence: float
) -> LowerBound:
    """Return the best bound over thresholds that are ranks fixed in advance, all paid for.

    The threshold that exactly r trials on D' exceed is itself a statistic of those trials, and the
    share of D' above it has the beta distribution of an order statistic, whose upper limit is
    Clopper and Pearson's of r successes; with ties the share is only smaller. Given the threshold,
    the trials on D above it are binomial. So the two limits at alpha/2 hold at a rank chosen
    beforehand just as at a threshold chosen beforehand, without knowing the scale of the scores.

    Ranks r = 0, 1, 4, 16, ... up to half of the trials on D', and as many among the trials on D for
    accusing D'; alpha is divided among all. Larger scores speak for D. Needs trials of both worlds,
    else 0 with the reason. Raises InputError as `clopper_pearson_bound` does.
    """
    worlds, scores = check_trials(worlds, scores)
    _check_delta(delta)
    alpha = significance(confidence)
    with_d, without = scores[worlds], scores[~worlds]
    reason = _too_few(with_d, without, 1)
    looks = [] if reason else [_ranks(without.size), _ranks(with_d.size)]
    paid = max(1, sum(look.size for look in looks))
    tail = alpha / (2 * paid)
    found = [
        _at_ranks(accused, others, ranks, delta, tail)
        for ranks, (accused, others) in zip(
            looks, ((with_d, without), (-without, -with_d)), strict=False
        )
    ]
    best = max(found, key=lambda rates: rates.epsilon.max(), default=None)
    place = 0 if best is None else int(np.argmax(best.epsilon))
    return LowerBound(
        epsilon=0.0 if best is None else float(best.epsilon[place]),
        delta=delta,
        confidence=confidence,
        method="Clopper-Pearson limits of the true and false positive rates at ranks fixed in "
        "advance, by Bonferroni's inequality",
        assumes="independent trials",
        trusts_noise=False,
        details={} if best is None else best.details(place) | {"thresholds": float(paid)},
        reason=reason,
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
    "clopper_pearson_split": clopper_pearson_split,
    "clopper_pearson_bonferroni": clopper_pearson_bonferroni,
    "gaussian": gaussian_bound,
}
"""Name -> function of (worlds, log_odds, delta, confidence)."""

NORMAL_LOG_ODDS = frozenset({"gaussian"})
"""The lower bounds that hold only for normal log-odds."""


def lower_bounds(
    worlds: Bools, log_odds: Floats, delta: float, confidence: float, not_normal: str | None = None
) -> dict[str, LowerBound]:
    """Return every lower bound by its name.

    not_normal: why the log-odds are not normal, if so: the bounds that need it are 0 and give this
    as the reason. Raises InputError as the bounds do.
    """
    bounds = {
        name: bound(worlds, log_odds, delta, confidence) for name, bound in LOWER_BOUNDS.items()
    }
    if not_normal:
        for name in NORMAL_LOG_ODDS:
            bounds[name] = replace(bounds[name], epsilon=0.0, details={}, reason=not_normal)
    return bounds


@dataclass(frozen=True)
class _Rates:
    """Limits [n] of the rates of the accused being accused, truly and falsely, and their epsilon."""

    true_low: Floats
    false_high: Floats
    epsilon: Floats

    def details(self, place: int) -> dict[str, float]:
        return {
            "true_positive_rate_low": float(self.true_low[place]),
            "false_positive_rate_high": float(self.false_high[place]),
        }


def _rates(true_low: Floats, false_high: Floats, delta: float) -> _Rates:
    """Return what limits of TPR and FPR prove, in whichever direction proves more.

    Both directions rest on the same two limits, so that the second costs nothing.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        accusing = np.log((true_low - delta) / false_high)
        clearing = np.log((1 - false_high - delta) / (1 - true_low))
    return _Rates(true_low, false_high, np.fmax(0.0, np.fmax(accusing, clearing)))


def _at_thresholds(
    with_d: Floats, without: Floats, thresholds: Floats, delta: float, tail: float
) -> _Rates:
    true, false = _above(with_d, thresholds), _above(without, thresholds)
    low = binomial_low(true, with_d.size, tail)
    return _rates(low, binomial_high(false, without.size, tail), delta)


def _at_ranks(
    accused: Floats, others: Floats, ranks: npt.NDArray[np.int64], delta: float, tail: float
) -> _Rates:
    thresholds = np.sort(others)[::-1][ranks]
    low = binomial_low(_above(accused, thresholds), accused.size, tail)
    return _rates(low, binomial_high(ranks, others.size, tail), delta)


def _ranks(trials: int) -> npt.NDArray[np.int64]:
    powers = 4 ** np.arange(30)
    return np.concatenate([[0], powers[powers <= trials // 2]])


def _above(sample: Floats, thresholds: Floats) -> npt.NDArray[np.int64]:
    """Return how many of the sample lie strictly above each threshold."""
    return sample.size - np.searchsorted(np.sort(sample), thresholds, side="right")


def _too_few(with_d: Floats, without: Floats, least: int) -> str | None:
    if not with_d.size or not without.size:
        return ONE_WORLD
    return "fewer than two trials of a world" if min(with_d.size, without.size) < least else None


def _check_delta(delta: float) -> None:
    if not 0 <= delta < 1:
        raise InputError(f"delta is {delta}; give a probability from 0 to below 1, such as 1e-5")


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
