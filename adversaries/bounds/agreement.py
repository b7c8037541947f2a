"""Checks that estimators which trust the claimed noise agree with estimators that do not.

Some estimators take Lambda for the log-likelihood ratio, or derive its law from the claimed noise;
others count decisions, or measure the noise. Two tests look for a difference.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from adversaries.arrays import Bools, Floats
from adversaries.bounds import canaries
from adversaries.bounds.gaussian_bounds import NORMALITY_LEVEL, normality
from adversaries.statistics.intervals import Interval, significance
from adversaries.statistics.trials import check_trials

LARGEST_WEIGHT = 4.0
"""Larger log-odds get this weight, so that rare trials of great certainty do not decide alone."""


@dataclass(frozen=True)
class EstimateComparison:
    """One comparison of an estimate that trusts the claimed noise with one that does not.

    Attributes:
        name: "calibration" or "mu".
        agree: whether both can be right, at the comparison's own confidence.
        surer: if not, whether the worlds lie further apart than the claimed noise allows.
        confidence: least probability that both are found to agree if both are right.
        details: the statistics behind the answer, by name.
    """

    name: str
    agree: bool
    surer: bool
    confidence: float
    details: dict[str, float]


def calibration(worlds: Bools, log_odds: Floats, confidence: float) -> EstimateComparison | None:
    """Test whether the beliefs expit(Lambda) come true as often as they say.

    If Lambda is the log-likelihood ratio, then given Lambda the world is D with probability p =
    expit(Lambda). With h = Lambda, cut off at +-`LARGEST_WEIGHT`, the sum of (b - p) h has mean 0
    and variance V = sum p (1 - p) h^2; it is positive with less noise than claimed. Bernstein's
    inequality gives the p-value where the worlds are coins. Balanced worlds reject no more often in
    simulations (the slow tests); that is not proven.

    Args:
        worlds: bool [T], fair coins; True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D from even odds.
        confidence: in (0, 1); they disagree where the p-value is below 1 - confidence.

    Returns:
        The comparison; None without trials of both worlds.

    Raises InputError for confidence out of range, or for trials that `check_trials` refuses.
    """
    worlds, log_odds = check_trials(worlds, log_odds)
    alpha = significance(confidence)
    if worlds.all() or not worlds.any():
        return None
    # Bernstein's inequality needs bounded terms.
    weights = np.clip(log_odds, -LARGEST_WEIGHT, LARGEST_WEIGHT)
    # expit(-x) instead of 1 - expit(x), which would round to 0 for sure beliefs.
    belief, doubt = expit(log_odds), expit(-log_odds)
    largest = float(np.abs(weights).max()) or 1.0
    weights /= largest  # otherwise the squares of tiny log-odds underflow to 0
    total = float(np.where(worlds, doubt, -belief) @ weights)
    variance = float(belief * doubt @ weights**2)
    p_value = 1.0
    if total:
        # Bernstein's inequality for terms of at most 1 in size, for both signs of the sum.
        p_value = 2 * math.exp(-(total**2) / (2 * variance + 2 * abs(total) / 3))
    return EstimateComparison(
        name="calibration",
        agree=p_value >= alpha,
        surer=total > 0,
        confidence=confidence,
        details={
            "sum": largest * total,
            "standard_deviation": largest * math.sqrt(variance),
            "p_value": min(1.0, p_value),
        },
    )


def mu(
    worlds: Bools, log_odds: Floats, predicted: float, confidence: float
) -> EstimateComparison | None:
    """Test whether the mu that the claimed noise predicts lies in the studentised interval of mu.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D from even odds.
        predicted: the mu that follows from the claimed noise.
        confidence: of the interval, in (0, 1).

    Returns:
        The comparison; None where log-odds are infinite, do not vary or do not look normal, and
        with fewer than two trials of a world.

    Raises InputError for confidence out of range, or for trials that `check_trials` refuses.
    """
    worlds, log_odds = check_trials(worlds, log_odds)
    if not np.isfinite(log_odds).all() or min(worlds.sum(), (~worlds).sum()) < 2:
        return None
    if normality(log_odds[worlds], log_odds[~worlds]) < NORMALITY_LEVEL:
        return None
    measured = canaries.effect(worlds, log_odds, confidence)
    interval: Interval = measured.interval
    if measured.reason:
        return None
    return EstimateComparison(
        name="mu",
        agree=interval.low <= predicted <= interval.high,
        surer=predicted < interval.low,
        confidence=confidence,
        details={"predicted": predicted, "low": interval.low, "high": interval.high},
    )
