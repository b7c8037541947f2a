"""Lower bounds on epsilon that hold with confidence, from T trials of the identification game."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from adversaries.statistics.design import INDEPENDENT, Design
from adversaries.statistics.e_process import betting_bound
from adversaries.statistics.gaussian_bounds import gaussian_bound, gaussian_unequal_bound, lessened
from adversaries.statistics.intervals import (
    LowerBound,
    binomial_high,
    binomial_low,
    check_delta,
    clopper_pearson,
    significance,
)
from adversaries.statistics.privacy_profile import privacy_profile_bound
from adversaries.statistics.rate_bounds import jeffreys_bound, mu_gdp_bound
from adversaries.statistics.trials import ONE_WORLD, Bools, Floats, check_trials

CANDIDATES = 512
"""Thresholds among which half of the trials choose, at most; more are thinned evenly."""


def clopper_pearson_bound(
    worlds: Bools, log_odds: Floats, delta: float, confidence: float, threshold: float = 0.0
) -> LowerBound:
    """Return the bound that the rates of the decision Lambda > threshold prove.

    (epsilon, delta)-privacy forces TPR <= e^epsilon FPR + delta, and the same of TNR and FNR. With
    TPR no lower and FPR no higher than their limits at alpha/2 each, both hold at once, and epsilon
    is the larger logarithm. The trials of one world may depend on those of the other.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D, or any other score.
        delta: of the guarantee that is bounded, in [0, 1).
        confidence: in (0, 1).
        threshold: fixed before the trials; a tie decides D'.

    Returns:
        The bound; 0 with the `reason` without trials of both worlds.

    Raises:
        InputError: unless 0 <= delta < 1; as of `estimators.advantage`.

    Source:
        Jagielski et al., "Auditing differentially private machine learning", 2020, Algorithm 2 and
        Theorem 2; there delta = 0.
    """
    worlds, log_odds = check_trials(worlds, log_odds)
    check_delta(delta)
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
    worlds: Bools, scores: Floats, delta: float, confidence: float, for_mu: bool = False
) -> LowerBound:
    """Return the bound at the threshold that looks best on half of the trials, from the other half.

    Of each world every second trial, in their order, chooses; the others, which had no part in the
    choice, give the bound as `clopper_pearson_bound` does. The threshold itself decides D'.

    Best is what would prove the largest epsilon from the limits t and f of TPR and FPR, at the
    level of the judging half; of several, as where none proves anything, that of the largest TPR -
    FPR.

    Args:
        worlds: bool [T], True where the model was trained on D.
        scores: float64 [T], larger ones speak for D; of any scale and with any number of ties.
        delta: of the guarantee that is bounded, in [0, 1).
        confidence: in (0, 1).
        for_mu: best is the largest Phi^-1(t) - Phi^-1(f), for whoever converts the limits in
            `details` to mu of Gaussian privacy; the threshold for epsilon mostly lies in a tail,
            where they prove little mu. Accusing D and accusing D' prove the same mu.

    Returns:
        The bound; 0 with the `reason` with fewer than two trials of a world.

    Raises:
        InputError: as of `clopper_pearson_bound`.
    """
    worlds, scores = check_trials(worlds, scores)
    check_delta(delta)
    tail = significance(confidence) / 2
    with_d, without = scores[worlds], scores[~worlds]
    # Candidates: the scores of the choosing half, thinned evenly.
    thresholds = np.unique(np.concatenate([with_d[::2], without[::2]]))
    if thresholds.size > CANDIDATES:
        thresholds = thresholds[np.linspace(0, thresholds.size - 1, CANDIDATES).astype(int)]
    # What each would prove if that half judged too; the largest gap of rates breaks ties.
    on_choice = _at_thresholds(with_d[::2], without[::2], thresholds, delta, tail)
    proven = on_choice.mu if for_mu else on_choice.epsilon
    gaps = _share_above(with_d[::2], thresholds) - _share_above(without[::2], thresholds)
    threshold = thresholds[np.lexsort((gaps, proven))[-1]]
    # The other half judges at the one that was chosen.
    found = _at_thresholds(with_d[1::2], without[1::2], threshold[None], delta, tail)
    return LowerBound(
        epsilon=float(found.epsilon[0]),
        delta=delta,
        confidence=confidence,
        method="Clopper-Pearson limits of the true and false positive rates on half of the trials "
        f"at a threshold chosen {'for mu ' * for_mu}on the other half",
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
    accusing D'; alpha is divided among all.

    Args:
        worlds: bool [T], True where the model was trained on D.
        scores: float64 [T], larger ones speak for D; of any scale.
        delta: of the guarantee that is bounded, in [0, 1).
        confidence: in (0, 1).

    Returns:
        The bound; 0 with the `reason` without trials of both worlds.

    Raises:
        InputError: as of `clopper_pearson_bound`.
    """
    worlds, scores = check_trials(worlds, scores)
    check_delta(delta)
    alpha = significance(confidence)
    with_d, without = scores[worlds], scores[~worlds]
    reason = _too_few(with_d, without, 1)
    # Ranks among D' for accusing D, among D for accusing D'; all are paid for.
    interim_analyses = [] if reason else [_ranks(without.size), _ranks(with_d.size)]
    paid = max(1, sum(analysis.size for analysis in interim_analyses))
    tail = alpha / (2 * paid)
    found = [
        _at_ranks(accused, others, ranks, delta, tail)
        for ranks, (accused, others) in zip(
            interim_analyses, ((with_d, without), (-without, -with_d)), strict=False
        )
    ]
    # The best rank of the better direction.
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


@dataclass(frozen=True)
class Estimator:
    """A lower bound, and what it needs of the trials beside independence in a world.

    Attributes:
        bound: function of (worlds, log_odds, delta, confidence).
        gaussian: whether it holds only if the mechanism is Gaussian DP.
        normal: whether the log-odds must be normal besides.
        dependent_worlds: whether the trials of one world may depend on those of the other.
    """

    bound: Callable[[Bools, Floats, float, float], LowerBound]
    gaussian: bool = False
    normal: bool = False
    dependent_worlds: bool = False


LOWER_BOUNDS: dict[str, Estimator] = {
    "clopper_pearson": Estimator(clopper_pearson_bound, dependent_worlds=True),
    "clopper_pearson_split": Estimator(clopper_pearson_split, dependent_worlds=True),
    "clopper_pearson_bonferroni": Estimator(clopper_pearson_bonferroni),
    "betting": Estimator(betting_bound),
    "jeffreys": Estimator(jeffreys_bound),
    "mu_gdp": Estimator(mu_gdp_bound, gaussian=True, dependent_worlds=True),
    "gaussian": Estimator(gaussian_bound, gaussian=True, normal=True),
    "gaussian_unequal": Estimator(gaussian_unequal_bound, gaussian=True, normal=True),
    "privacy_profile": Estimator(privacy_profile_bound, dependent_worlds=True),
}
"""Name -> what a report computes of every run, and where it refuses to.

`rate_bounds.trade_off_bound` is no entry, because it needs to know the mechanism's family.
"""


class MechanismKind(StrEnum):
    """What is known of the mechanism that was attacked, by which some bounds stand or fall.

    Attributes:
        GAUSSIAN: Gaussian noise on sums of full batches, in any number of steps: Gaussian DP.
        OTHER: anything else, sampled Gaussian steps among it, or a mechanism that nobody knows.
    """

    GAUSSIAN = "gaussian"
    OTHER = "other"


NOT_GAUSSIAN = "it holds of Gaussian noise on full batches alone"
"""Why a bound that needs Gaussian DP says nothing of another mechanism."""

COMMON = "the worlds share their random numbers, and the bound needs independent ones"
"""Why a bound that needs independent worlds says nothing with common random numbers."""


def lower_bounds(
    worlds: Bools,
    log_odds: Floats,
    delta: float,
    confidence: float,
    mechanism: MechanismKind,
    not_normal: str | None = None,
    design: Design = INDEPENDENT,
    *,
    trial_mu: Floats | None = None,
    refused: Mapping[str, str] | None = None,
    names: Collection[str] | None = None,
) -> dict[str, LowerBound]:
    """Return lower bounds by name; those that do not hold are 0, with the reason.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D from even odds.
        delta: of the guarantee that is bounded, in (0, 1).
        confidence: of each bound by itself, in (0, 1).
        mechanism: what made the log-odds, on which it depends which bounds hold.
        not_normal: why the log-odds are not normal, if so.
        design: where the worlds depend on each other, bounds that need independent ones do not
            hold; where the trials stopped at one of several interim analyses, each is computed at
            what that leaves.
        trial_mu: float64 [T], mu of every trial where it may vary, for which bounds of normal
            log-odds are `lessened`.
        refused: name -> why else a bound does not hold.
        names: which of `LOWER_BOUNDS`; None for all.

    Raises:
        InputError: as of the bounds.
    """
    bounds = {}
    for name in LOWER_BOUNDS if names is None else names:
        estimator = LOWER_BOUNDS[name]
        found = estimator.bound(worlds, log_odds, delta, design.level(confidence))
        bounds[name] = replace(found, confidence=confidence)
        reason = (refused or {}).get(name)
        if estimator.normal:
            reason = reason or not_normal
        if estimator.gaussian and mechanism is not MechanismKind.GAUSSIAN:
            reason = reason or NOT_GAUSSIAN
        if design.common and not estimator.dependent_worlds:
            reason = reason or COMMON
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


def _share_above(sample: Floats, thresholds: Floats) -> Floats:
    return _above(sample, thresholds) / max(1, sample.size)


def _too_few(with_d: Floats, without: Floats, least: int) -> str | None:
    if not with_d.size or not without.size:
        return ONE_WORLD
    return "fewer than two trials of a world" if min(with_d.size, without.size) < least else None


def _log_ratio(numerator: float, denominator: float) -> float:
    return math.log(numerator / denominator) if numerator > denominator else 0.0
