"""The privacy profile delta(epsilon), estimated from exact log-likelihood ratios.

If Lambda is the log-likelihood ratio of D against D', then

    delta(epsilon) = E_D (1 - e^(epsilon - Lambda))+,

and the same for -Lambda under D' (Balle, Barthe and Gaboardi, "Privacy profiles and amplification
by subsampling", 2020, Theorem 3). Lambda is exact only if the noise is as the adversary assumes.
"""

import math
from dataclasses import dataclass

import numpy as np

from adversaries.arrays import Bools, Floats
from adversaries.statistics.intervals import EpsilonBound, check_delta, significance
from adversaries.statistics.trials import ONE_WORLD, check_trials

STEP = 1e-3
"""Spacing of the fixed grid of epsilons e^(i STEP) - 1: absolute near 0, relative above 1."""


@dataclass(frozen=True)
class Profile:
    """delta as a function of epsilon in one direction.

    At any one epsilon each side of the band misses the truth with probability (1 - confidence)/2.

    Attributes:
        epsilons: float64 [n].
        estimate: float64 [n], of delta at each epsilon.
        low: float64 [n], lower end of the band, at least 0.
        high: float64 [n], upper end of the band, at most 1.
        confidence: of the band, in (0, 1).
    """

    epsilons: Floats
    estimate: Floats
    low: Floats
    high: Floats
    confidence: float


def privacy_profiles(
    worlds: Bools, log_odds: Floats, epsilons: Floats, confidence: float
) -> dict[str, Profile]:
    """Return the profile of D against D' ("world_d") and of D' against D ("world_d_prime").

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D from even odds, an exact likelihood ratio.
        epsilons: float64 [n], at which delta is estimated.
        confidence: of the band, in (0, 1).

    Returns: the profiles by name, without a world that has fewer than two trials.
    Raises InputError for confidence out of range, or for trials that `check_trials` refuses.
    Source: The band is Maurer and Pontil, "Empirical Bernstein bounds and sample-variance
    penalization", 2009, Theorem 4.
    """
    worlds, log_odds = check_trials(worlds, log_odds)
    tail = significance(confidence) / 2
    profiles = {}
    for name, ratios in (("world_d", log_odds[worlds]), ("world_d_prime", -log_odds[~worlds])):
        if ratios.size >= 2:
            mean, reach = _bernstein(ratios, epsilons, tail)
            # A delta lies between 0 and 1.
            low, high = np.maximum(mean - reach, 0.0), np.minimum(mean + reach, 1.0)
            profiles[name] = Profile(epsilons, mean, low, high, confidence)
    return profiles


def privacy_profile_bound(
    worlds: Bools, log_odds: Floats, delta: float, confidence: float
) -> EpsilonBound:
    """Return the largest epsilon up to which the profile's lower limit stays above delta.

    Each direction has alpha/2 to itself. Trying many epsilons costs nothing: they are a fixed grid,
    tried upwards until the limit is no longer above delta. Let g be the first grid point that is no
    less than the true epsilon. Then delta(g) <= delta, and the bound can only reach g by an error
    at this one point, which has probability at most alpha/2.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D from even odds.
        delta: in [0, 1).
        confidence: in (0, 1).

    Returns: the bound; 0 with the `reason` with fewer than two trials of a world or infinite
    log-odds.
    Raises InputError for delta or confidence out of range, or for trials that `check_trials`
    refuses.
    """
    check_delta(delta)
    worlds, log_odds = check_trials(worlds, log_odds)
    tail = significance(confidence) / 2
    reason = None
    if np.isinf(log_odds).any():
        reason = "infinite log-odds: a step without noise"
    elif min(worlds.sum(), (~worlds).sum()) < 2:
        few = worlds.any() and not worlds.all()
        reason = "fewer than two trials of a world" if few else ONE_WORLD
    details = {}
    if not reason:
        for name, ratios in (("world_d", log_odds[worlds]), ("world_d_prime", -log_odds[~worlds])):
            details[f"epsilon_{name}"] = _inverse(ratios, delta, tail)
    return EpsilonBound(
        epsilon=max(details.values(), default=0.0),
        delta=delta,
        confidence=confidence,
        method="empirical Bernstein limit of the privacy profile, from exact likelihood ratios",
        assumes="independent trials, log-odds that are exact likelihood ratios",
        trusts_noise=True,
        details=details,
        reason=reason,
    )


def _inverse(ratios: Floats, delta: float, tail: float) -> float:
    """Return the last epsilon of the grid before the profile's lower limit falls to delta."""
    # Above the largest ratio the estimate is 0, and the limit below every delta.
    last = math.ceil(math.log1p(max(0.0, float(ratios.max()))) / STEP)
    grid = np.expm1(STEP * np.arange(last + 1))
    mean, reach = _bernstein(ratios, grid, tail)
    # Go up the grid to the first epsilon that fails: this order makes many tries cost nothing.
    (failed,) = np.nonzero(mean - reach <= delta)
    return float(grid[max(0, failed[0] - 1)]) if failed.size else float(grid[-1])


def _bernstein(ratios: Floats, epsilons: Floats, tail: float) -> tuple[Floats, Floats]:
    """Return the mean of (1 - e^(epsilon - ratio))+, [m], and its largest error."""
    n = ratios.size
    largest_first = np.sort(ratios)[::-1]
    # How many ratios lie above each epsilon; only they count.
    above = n - np.searchsorted(largest_first[::-1], epsilons, side="right")
    # Logs of the sums of e^(-ratio) and of e^(-2 ratio) over the ratios above each epsilon.
    once, twice = (
        np.concatenate([[-np.inf], np.logaddexp.accumulate(-power * largest_first)])[above]
        for power in (1, 2)
    )
    once, twice = np.exp(epsilons + once), np.exp(2 * epsilons + twice)
    # The means of x = 1 - e^(epsilon - ratio) and of x^2, over the ratios above.
    mean = np.maximum(above - once, 0.0) / n
    squares = np.maximum(above - 2 * once + twice, 0.0) / n
    variance = np.maximum(squares - mean**2, 0.0) * n / (n - 1)
    # Maurer and Pontil's bound for values in [0, 1].
    logarithm = math.log(2 / tail)
    return mean, np.sqrt(2 * variance * logarithm / n) + 7 * logarithm / (3 * (n - 1))
