"""Lower bounds on epsilon that hold with confidence, from T trials of the identification game."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from scipy.special import ndtri

from adversaries.arrays import Bools, Floats, Ints
from adversaries.bounds.e_process import betting_bound
from adversaries.bounds.gaussian_bounds import gaussian_bound, gaussian_unequal_bound, lessened
from adversaries.bounds.privacy_profile import privacy_profile_bound
from adversaries.bounds.rate_bounds import jeffreys_bound, mu_gdp_bound
from adversaries.statistics.intervals import (
    EpsilonBound,
    binomial_high,
    binomial_low,
    check_delta,
    clopper_pearson,
    significance,
)
from adversaries.statistics.trials import ONE_WORLD, check_trials

CANDIDATES = 512
"""Largest number of thresholds among which half of the trials choose; more are thinned evenly."""


def clopper_pearson_bound(
    worlds: Bools, log_odds: Floats, delta: float, confidence: float, threshold: float = 0.0
) -> EpsilonBound:
    """Return the bound that the rates of the decision Lambda > threshold prove.

    (epsilon, delta)-privacy forces TPR <= e^epsilon FPR + delta, and the same for TNR and FNR. TPR
    and FPR have limits at alpha/2 each, so both hold at once.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D, or any other score.
        delta: of the guarantee that is bounded, in [0, 1).
        confidence: in (0, 1).
        threshold: fixed before the trials; a tie decides D'.

    Returns: the bound; 0 with the `reason` without trials of both worlds.
    Raises InputError for delta or confidence out of range, or for trials that `check_trials`
    refuses. Source: Jagielski et al., "Auditing differentially private machine learning", 2020,
    Algorithm 2 and Theorem 2, where delta = 0.
    """
    worlds, log_odds = check_trials(worlds, log_odds)
    check_delta(delta)
    decided = log_odds > threshold
    true, false = decided[worlds], decided[~worlds]
    # A two-sided interval at the confidence has alpha/2 at each end, so one end of each rate holds
    # together with the other at the confidence.
    tpr = clopper_pearson(int(true.sum()), true.size, confidence).low
    fpr = clopper_pearson(int(false.sum()), false.size, confidence).high
    return EpsilonBound(
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
    worlds: Bools, scores: Floats, delta: float, confidence: float, for_mu: bool = False
) -> EpsilonBound:
    """Return the bound at the threshold that looks best on half of the trials, from the other half.

    In each world every second trial chooses the threshold. The other trials give the bound like
    `clopper_pearson_bound`. A score at the threshold decides D'.

    Args:
        worlds: bool [T], True where the model was trained on D.
        scores: float64 [T], larger ones indicate D; of any scale and with any number of ties.
        delta: of the guarantee that is bounded, in [0, 1).
        confidence: in (0, 1).
        for_mu: whether the best threshold has the largest Phi^-1(t) - Phi^-1(f) of the limits
            instead, to convert those in `details` to mu of Gaussian privacy.

    Returns: the bound; 0 with the `reason` with fewer than two trials of a world.
    Raises InputError for delta or confidence out of range, or for trials that `check_trials`
    refuses.
    """
    worlds, scores = check_trials(worlds, scores)
    check_delta(delta)
    tail = significance(confidence) / 2
    with_d, without = scores[worlds], scores[~worlds]
    # Candidates: the scores of the choosing half, thinned evenly.
    thresholds = np.unique(np.concatenate([with_d[::2], without[::2]]))
    if thresholds.size > CANDIDATES:
        thresholds = thresholds[np.linspace(0, thresholds.size - 1, CANDIDATES).astype(int)]
    # What each would prove if this half judged too; the largest gap of rates breaks ties.
    on_choice = _at_thresholds(with_d[::2], without[::2], thresholds, delta, tail)
    proven = on_choice.mu if for_mu else on_choice.epsilon
    gaps = _share_above(with_d[::2], thresholds) - _share_above(without[::2], thresholds)
    threshold = thresholds[np.lexsort((gaps, proven))[-1]]
    # The other half judges at the chosen threshold.
    judged = _at_thresholds(with_d[1::2], without[1::2], threshold[None], delta, tail)
    return EpsilonBound(
        epsilon=float(judged.epsilon[0]),
        delta=delta,
        confidence=confidence,
        method="Clopper-Pearson limits of the true and false positive rates on half of the trials "
        f"at a threshold chosen {'for mu ' * for_mu}on the other half",
        assumes="independent trials",
        trusts_noise=False,
        details=judged.details(0) | {"threshold": float(threshold)},
        reason=_too_few(with_d, without, 2),
    )


def clopper_pearson_bonferroni(
    worlds: Bools, scores: Floats, delta: float, confidence: float
) -> EpsilonBound:
    """Return the best bound over thresholds at fixed ranks, with alpha divided among them.

    The share of D' above the threshold that exactly r trials on D' exceed has the beta distribution
    of an order statistic, whose upper limit is Clopper and Pearson's for r successes. Given the
    threshold, the trials on D above it are binomial. Ties are broken at random, independently of
    the worlds. So both limits at alpha/2 hold at a rank fixed in advance just as at a fixed
    threshold.

    The ranks are r = 0, 1, 4, 16, ... up to half of the trials on D', and as many among the trials
    on D for accusing D'.

    Args:
        worlds: bool [T], True where the model was trained on D.
        scores: float64 [T], larger ones indicate D; of any scale.
        delta: of the guarantee that is bounded, in [0, 1).
        confidence: in (0, 1).

    Returns: the bound; 0 with the `reason` without trials of both worlds.
    Raises InputError for delta or confidence out of range, or for trials that `check_trials`
    refuses.
    """
    worlds, scores = check_trials(worlds, scores)
    check_delta(delta)
    alpha = significance(confidence)
    # Ties would leave the number of trials above a rank undefined.
    scores = _without_ties(scores)
    with_d, without = scores[worlds], scores[~worlds]
    reason = _too_few(with_d, without, 1)
    # Ranks among D' for accusing D, and among D for accusing D'; alpha is divided among all.
    ranks = [] if reason else [_ranks(without.size), _ranks(with_d.size)]
    paid = max(1, sum(each.size for each in ranks))
    # Each rank pays for two limits.
    tail = alpha / (2 * paid)
    directions = []
    for at, (accused, others) in zip(ranks, ((with_d, without), (-without, -with_d)), strict=False):
        # The threshold is the other world's score at this rank from the top, so exactly `at` of its
        # trials lie above it.
        low = binomial_low(_above(accused, np.sort(others)[::-1][at]), accused.size, tail)
        directions.append(_rates(low, binomial_high(at, others.size, tail), delta))
    # The best rank of the better direction.
    best = max(directions, key=lambda rates: rates.epsilon.max(), default=None)
    place = 0 if best is None else int(np.argmax(best.epsilon))
    return EpsilonBound(
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


@dataclass(frozen=True)
class Estimator:
    """A lower bound, and its assumptions besides independent trials.

    Attributes:
        bound: function of (worlds, log_odds, delta, confidence).
        gaussian: whether it holds only if the mechanism is Gaussian DP.
        normal: whether the log-odds must also be normal.
    """

    bound: Callable[[Bools, Floats, float, float], EpsilonBound]
    gaussian: bool = False
    normal: bool = False


LOWER_BOUNDS: dict[str, Estimator] = {
    "clopper_pearson": Estimator(clopper_pearson_bound),
    "clopper_pearson_split": Estimator(clopper_pearson_split),
    "clopper_pearson_bonferroni": Estimator(clopper_pearson_bonferroni),
    "betting": Estimator(betting_bound),
    "jeffreys": Estimator(jeffreys_bound),
    "mu_gdp": Estimator(mu_gdp_bound, gaussian=True),
    "gaussian": Estimator(gaussian_bound, gaussian=True, normal=True),
    "gaussian_unequal": Estimator(gaussian_unequal_bound, gaussian=True, normal=True),
    "privacy_profile": Estimator(privacy_profile_bound),
}
"""The lower bounds that a report computes, by name."""


class MechanismKind(StrEnum):
    """The kind of mechanism that was attacked, which decides which bounds hold.

    Attributes:
        GAUSSIAN: Gaussian noise on sums of full batches, in any number of steps: Gaussian DP.
        OTHER: any other mechanism, including sampled Gaussian steps and unknown mechanisms.
    """

    GAUSSIAN = "gaussian"
    OTHER = "other"


NOT_GAUSSIAN = "the bound holds only for Gaussian noise on full batches"
"""Reason of a bound that needs Gaussian DP for another mechanism."""


def lower_bounds(
    worlds: Bools,
    log_odds: Floats,
    delta: float,
    confidence: float,
    mechanism: MechanismKind,
    not_normal: str | None = None,
    *,
    trial_mu: Floats | None = None,
    refused: Mapping[str, str] | None = None,
    names: Collection[str] | None = None,
) -> dict[str, EpsilonBound]:
    """Return lower bounds by name; a bound that does not hold is 0, with the reason.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D from even odds.
        delta: of the guarantee that is bounded, in (0, 1).
        confidence: of each bound by itself, in (0, 1).
        mechanism: the kind of mechanism, which decides which bounds hold.
        not_normal: why the log-odds are not normal, None if they are.
        trial_mu: float64 [T], mu of every trial where it may vary, for `lessened` bounds.
        refused: name -> another reason why a bound does not hold.
        names: which of `LOWER_BOUNDS`; None for all.

    Raises InputError for delta or confidence out of range, or for trials that `check_trials`
    refuses.
    """
    bounds = {}
    for name in LOWER_BOUNDS if names is None else names:
        estimator = LOWER_BOUNDS[name]
        bounds[name] = estimator.bound(worlds, log_odds, delta, confidence)
        reason = (refused or {}).get(name)
        if estimator.normal:
            reason = reason or not_normal
        if estimator.gaussian and mechanism is not MechanismKind.GAUSSIAN:
            reason = reason or NOT_GAUSSIAN
        if reason:
            bounds[name] = replace(bounds[name], epsilon=0.0, details={}, reason=reason)
        if estimator.normal and trial_mu is not None:
            bounds[name] = lessened(bounds[name], trial_mu, delta)
    return bounds


@dataclass(frozen=True)
class _Rates:
    """Limits [n] of the true and the false positive rate, and the epsilon that they prove."""

    true_low: Floats
    false_high: Floats
    epsilon: Floats

    @property
    def mu(self) -> Floats:
        return np.fmax(0.0, ndtri(self.true_low) - ndtri(self.false_high))

    def details(self, place: int) -> dict[str, float]:
        return {
            "true_positive_rate_low": float(self.true_low[place]),
            "false_positive_rate_high": float(self.false_high[place]),
        }


def _rates(true_low: Floats, false_high: Floats, delta: float) -> _Rates:
    """Return the epsilon that limits of TPR and FPR prove, by accusing D or by accusing D'."""
    with np.errstate(divide="ignore", invalid="ignore"):
        # From TPR <= e^epsilon FPR + delta, and the same inequality for TNR and FNR. A negative or
        # undefined logarithm proves nothing and becomes 0.
        accusing = np.log((true_low - delta) / false_high)
        clearing = np.log((1 - false_high - delta) / (1 - true_low))
    return _Rates(true_low, false_high, np.fmax(0.0, np.fmax(accusing, clearing)))


def _at_thresholds(
    with_d: Floats, without: Floats, thresholds: Floats, delta: float, tail: float
) -> _Rates:
    true, false = _above(with_d, thresholds), _above(without, thresholds)
    low = binomial_low(true, with_d.size, tail)
    return _rates(low, binomial_high(false, without.size, tail), delta)


def _ranks(trials: int) -> Ints:
    # Sparse ranks: each one costs a share of alpha, and limits at close ranks hardly differ.
    powers = 4 ** np.arange(30)
    return np.concatenate([[0], powers[powers <= trials // 2]])


def _without_ties(scores: Floats) -> Floats:
    """Return the ranks of the scores, 0 to T - 1; equal scores in an order of a fixed seed."""
    # A random second key breaks ties independently of the worlds. The fixed seed keeps reports
    # repeatable.
    order = np.lexsort((np.random.default_rng(0).permutation(scores.size), scores))
    ranks = np.empty(scores.size)
    ranks[order] = np.arange(scores.size)
    return ranks


def _above(sample: Floats, thresholds: Floats) -> Ints:
    """Return how many of the sample lie strictly above each threshold."""
    # Those at the threshold or below it stand before this position.
    return sample.size - np.searchsorted(np.sort(sample), thresholds, side="right")


def _share_above(sample: Floats, thresholds: Floats) -> Floats:
    return _above(sample, thresholds) / max(1, sample.size)


def _too_few(with_d: Floats, without: Floats, least: int) -> str | None:
    if not with_d.size or not without.size:
        return ONE_WORLD
    return "fewer than two trials of a world" if min(with_d.size, without.size) < least else None


def _log_ratio(numerator: float, denominator: float) -> float:
    return math.log(numerator / denominator) if numerator > denominator else 0.0
