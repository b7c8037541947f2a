"""The measured trade-off curve of a game, with bands that hold at all thresholds together.

At each threshold of the score, a share of the trials on D' is above it (false positives) and a
share of those on D (true positives). Half of the error is for each curve's band, with the same
chance at each of its counts.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import betaincinv, gammaln, xlogy

from adversaries.arrays import Bools, Floats
from adversaries.statistics.intervals import significance
from adversaries.statistics.trials import check_trials

NEGLIGIBLE = 1e-25
"""Probability of a count below which it is left out."""

PRECISION = 1.01
"""Factor by which the chance of an error at each count may be smaller than it could be."""


@dataclass(frozen=True, eq=False)
class Band:
    """Rates at m thresholds, from the strictest to the mildest.

    Attributes:
        false: share of the trials on D' above the threshold, [m], rising.
        false_low: lower limit of the rate of false positives, [m].
        false_high: upper limit.
        true: share of the trials on D above the threshold, [m], rising.
        true_low: lower limit of the rate of true positives, [m].
        true_high: upper limit.
    """

    false: Floats
    false_low: Floats
    false_high: Floats
    true: Floats
    true_low: Floats
    true_high: Floats


def trade_off_band(
    worlds: Bools, log_odds: Floats, confidence: float, most: int | None = None
) -> Band:
    """Return the curve of a score and limits that hold at all thresholds with `confidence`.

    The trials must be independent. Ties are allowed.

    Args:
        worlds: bool [T], True where the model was trained on D; both worlds must occur.
        log_odds: float64 [T], the final Lambda for D, or any other score.
        confidence: of all limits together, in (0, 1).
        most: number of thresholds, of evenly spaced ranks; None for one at each score.
    """
    worlds, scores = check_trials(worlds, log_odds)
    half = 1 - significance(confidence) / 2
    thresholds = np.unique(scores)[::-1]
    if most is not None and len(thresholds) > most:
        ranks = np.linspace(0, len(scores) - 1, most).round().astype(int)
        thresholds = np.unique(np.sort(scores)[ranks])[::-1]
    columns: list[Floats] = []
    for sample in (np.sort(scores[~worlds]), np.sort(scores[worlds])):
        # The number of scores at each threshold or above it. Its limits follow from the numbers
        # above and below.
        above = len(sample) - np.searchsorted(sample, thresholds, side="left")
        low = simultaneous_lower(len(sample), half)
        columns += [above / len(sample), low[above], 1 - low[len(sample) - above]]
    return Band(*columns)


@lru_cache(maxsize=32)
def simultaneous_lower(trials: int, confidence: float) -> Floats:
    """Return lower limits [n + 1] of a distribution function by the number of trials below it.

    A count k's limit holds wherever k of the n trials are at most the threshold, at all thresholds.

    Args:
        trials: n, at least 1.
        confidence: of all lower and upper limits together, in (0, 1).

    Source: equal local levels: Berk and Jones, "Goodness-of-fit test statistics that dominate the
        Kolmogorov statistics", 1979. The level is exact for each side (`_crossing`), and the two
        sides divide the error.
    """
    error = significance(confidence) / 2
    # The chance of any error is between that of one count and that of all.
    small, large = error / trials, error
    while large > PRECISION * small:
        middle = float(np.sqrt(small * large))
        small, large = (middle, large) if _crossing(trials, middle) <= error else (small, middle)
    return np.concatenate([[0.0], _limits(trials, small)])


def _limits(trials: int, level: float) -> Floats:
    """Return the quantile of the k-th smallest of n uniform numbers at a level, for k = 1..n."""
    order = np.arange(1, trials + 1, dtype=np.float64)
    limits: Floats = betaincinv(order, trials + 1 - order, level)
    return limits


def _crossing(trials: int, level: float) -> float:
    """Return the probability that any order statistic of n uniform numbers is below its limit.

    The numbers are a Poisson process of rate n on [0, 1], given that there are n. From limit to
    limit, the number of points so far stays below the order of the limit.
    """
    # The expected number of points between each limit and the next.
    steps = np.diff(_limits(trials, level), prepend=0.0) * trials
    first, weights = 0, np.ones(1)  # the probabilities of first, first + 1, ... points
    for order, mean in enumerate(steps):
        # More points than this have a negligible probability.
        reach = int(mean + 12 * np.sqrt(mean) + 30)
        increments = _poisson(mean, reach)
        # Add the points of this step, and drop the paths with more points than the order allows:
        # they have crossed.
        weights = np.convolve(weights, increments)[: order + 1 - first]
        kept = np.flatnonzero(weights > NEGLIGIBLE)
        first, weights = first + kept[0], weights[kept[0] : kept[-1] + 1]
    rest = trials - steps.sum()
    missing = trials - first - np.arange(len(weights))
    # Divide by the probability that the process has exactly n points: this turns it into n uniform
    # numbers.
    whole = _poisson(trials, trials)[-1]
    return float(1 - (weights * _poisson(rest, trials)[missing]).sum() / whole)


def _poisson(mean: float, most: int) -> Floats:
    counts = np.arange(most + 1, dtype=np.float64)
    probabilities: Floats = np.exp(xlogy(counts, mean) - mean - gammaln(counts + 1))
    return probabilities
