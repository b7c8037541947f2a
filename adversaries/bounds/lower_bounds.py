"""Lower bounds on epsilon that hold with confidence, from T trials of the identification game."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from scipy.special import ndtri

from adversaries.arrays import Bools, Floats, Ints
from adversaries.bounds.gaussian_bounds import gaussian_bound, lessened
from adversaries.bounds.rate_bounds import FALSE_HIGH, TRUE_LOW, by_mu
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
        details={TRUE_LOW: tpr, FALSE_HIGH: fpr},
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
        details=judged.details(0) | {"threshold": float(threshold)},
        reason=_too_few(with_d, without),
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
    "mu_gdp": Estimator(lambda *game: by_mu(clopper_pearson_bound(*game)), gaussian=True),
    "gaussian": Estimator(gaussian_bound, gaussian=True, normal=True),
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
        return {TRUE_LOW: float(self.true_low[place]), FALSE_HIGH: float(self.false_high[place])}


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


def _above(sample: Floats, thresholds: Floats) -> Ints:
    """Return how many of the sample lie strictly above each threshold."""
    # Those at the threshold or below it stand before this position.
    return sample.size - np.searchsorted(np.sort(sample), thresholds, side="right")


def _share_above(sample: Floats, thresholds: Floats) -> Floats:
    return _above(sample, thresholds) / max(1, sample.size)


def _too_few(with_d: Floats, without: Floats) -> str | None:
    if not with_d.size or not without.size:
        return ONE_WORLD
    return "fewer than two trials of a world" if min(with_d.size, without.size) < 2 else None


def _log_ratio(numerator: float, denominator: float) -> float:
    return math.log(numerator / denominator) if numerator > denominator else 0.0
