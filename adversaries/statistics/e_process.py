"""E-processes: evidence that is valid whenever one looks, and however many trials follow.

An e-process against a hypothesis is a process E_t >= 0, E_0 = 1, that no bet can make grow where
the hypothesis is true: a supermartingale, or below one, under every law in it. By Ville's
inequality it ever reaches 1/alpha with probability at most alpha. So whoever rejects when it does
may look after every round, stop at will, go on at will, and errs with probability alpha in all.

Several of them, against several hypotheses, are averaged: an average of supermartingales is one.
`closed` tells for which the average of every group that they are in is large, so that with
probability 1 - alpha nobody is accused of what is not so (the closure principle).

For trials of the identification game: let TPR be the probability, given what came before, that D is
accused in a trial on D, and FPR in one on D'. A mechanism with trade-off curve f has TPR <=
1 - f(FPR). Against TPR <= t, a bet on the odds being exp(theta) times t's pays

    exp(theta accused) / (1 - t + t exp(theta)),    theta > 0,

whose mean is at most 1 for every TPR <= t, and which falls as t grows; the same against FPR >= x
with whom it does not accuse. A trial is of one world, so the product of the two is an e-process
against {TPR <= t, FPR >= x}, whatever the order of the worlds. The hypothesis TPR <= 1 - f(FPR) is
the union of these sets over the curve, and the least of their products over it is below the one of
the true rates: an e-process against all of it, at which no significance is divided between the
worlds. A mixture over theta stands for not knowing how large the rates are.

Sources:
    Ville, "Étude critique de la notion de collectif", 1939; Ramdas, Grünwald, Vovk and Shafer,
    "Game-theoretic statistics and safe anytime-valid inference", 2023; Vovk and Wang, "E-values:
    calibration, combination and applications", 2021 (averages and their closure);
    Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", 2024.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from adversaries.statistics.intervals import (
    Interval,
    LowerBound,
    check_delta,
    significance,
)
from adversaries.statistics.trials import ONE_WORLD, Bools, Floats, check_trials

LOG_ODDS = 2.0 ** (np.arange(-10, 6) / 2)
"""theta: how much larger than allowed the log-odds are that bets are placed on; each alike."""

GRID = np.concatenate([[0.0], np.geomspace(1e-9, 1e-2, 15), np.linspace(0.03, 1.0, 33)])
"""False positive rates between which the least product is bounded from below at first."""

FINER, PASSES = 16, 3
"""Into how many a gap of the grid is divided that may have the least product, and how often."""

LARGEST = 100.0
"""No epsilon or mu above this is proven."""

Curve = Callable[[Floats], Floats]
"""False positive rates -> the largest true positive rates that are allowed; it does not fall."""


def closed(log_e: Floats) -> Floats:
    """Return log e-values [k] of all hypotheses, each paid for being one of several.

    The least average over the groups that a hypothesis is in. Of hypotheses that are true none ever
    reaches log 1/alpha but with probability alpha, for all of them together, if at one time all
    values are of e-processes on the same observations.

    Args:
        log_e: float64 [k], at one time; 0 for a process that has not begun.

    Source:
        Vovk and Wang, 2021, Algorithm 2.
    """
    order = np.argsort(log_e)
    ascending = log_e[order]
    # sums[j] of the j smallest.
    sums = np.concatenate([[-np.inf], np.logaddexp.accumulate(ascending)])
    sizes = np.arange(1, log_e.size + 1)
    found = np.empty_like(log_e)
    for rank, value in enumerate(ascending):
        # With the smaller ones, fewest first; then those groups of the smallest that have it.
        fewer = np.logaddexp(sums[: rank + 1], value) - np.log(sizes[: rank + 1])
        more = sums[rank + 1 :] - np.log(sizes[rank:])
        found[order[rank]] = min(fewer.min(), more.min())
    return found


@dataclass(frozen=True)
class Accusations:
    """How often D was accused so far, in trials on D and on D'.

    Attributes:
        true: in trials on D.
        on_d: how many those were.
        false: in trials on D'.
        others: how many those were.
    """

    true: int
    on_d: int
    false: int
    others: int

    def log_e(self, curve: Curve) -> float:
        """Return the log of the e-process against TPR <= curve(FPR).

        Args:
            curve: the largest true positive rate at every false positive rate.
        """
        low, high, found = GRID[:-1], GRID[1:], math.inf
        for _ in range(PASSES):
            # In a gap no product is below this one, since the bets against TPR <= t fall in t, and
            # those against FPR >= x rise in x; at its lower end the product is that.
            false = _log_e(self.others - self.false, self.others, 1 - low)
            least = _log_e(self.true, self.on_d, curve(high)) + false
            there = _log_e(self.true, self.on_d, curve(low)) + false
            found = min(found, float(there.min()))
            if not (lower := least < found).any():
                return found
            # Only gaps that may be below what was found are looked at more closely.
            steps = np.linspace(low[lower], high[lower], FINER + 1)
            low, high = steps[:-1].ravel(), steps[1:].ravel()
        return min(found, float(least.min()))


def betting_bound(worlds: Bools, log_odds: Floats, delta: float, confidence: float) -> LowerBound:
    """Return the epsilon that the decisions Lambda > 0 refute, whenever one looks.

    Unlike other bounds it holds at all numbers of trials together: trials may be added because of
    what those before them showed, and end when enough is proven.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D, or any score that decides D above 0.
        delta: of the guarantee that is bounded, in [0, 1).
        confidence: in (0, 1).

    Returns:
        The bound, with the rates and the interval of the advantage that holds likewise (by itself)
        in its details; 0 with the `reason` without trials of both worlds.

    Raises:
        InputError: unless 0 <= delta < 1; as of `estimators.advantage`.
    """
    check_delta(delta)
    counts, alpha = _counted(worlds, log_odds), significance(confidence)
    both = bool(counts.on_d and counts.others)
    interval = advantage_interval(worlds, log_odds, confidence)
    epsilon = _largest(lambda value: counts.log_e(_private(value, delta)), 0.0, LARGEST, alpha)
    return LowerBound(
        epsilon=max(0.0, epsilon) if both else 0.0,
        delta=delta,
        confidence=confidence,
        method="e-process of bets on the decisions at the threshold 0",
        assumes="independent trials, of a number that may depend on what they show",
        trusts_noise=False,
        details={
            "true_positive_rate": counts.true / counts.on_d,
            "false_positive_rate": counts.false / counts.others,
            "advantage_low": interval.low,
            "advantage_high": interval.high,
        }
        if both
        else {},
        reason=None if both else ONE_WORLD,
    )


def betting_mu(worlds: Bools, log_odds: Floats, confidence: float) -> float:
    """Return the mu of Gaussian privacy that the decisions Lambda > 0 refute, whenever one looks.

    The noise is at most sensitivity/mu, if the mechanism composes to a Gaussian one.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], as of `betting_bound`.
        confidence: in (0, 1).

    Raises:
        InputError: as of `estimators.advantage`; an impossible confidence.
    """
    counts = _counted(worlds, log_odds)
    found = _largest(
        lambda mu: counts.log_e(lambda rates: ndtr(ndtri(rates) + mu)),
        0.0,
        LARGEST,
        significance(confidence),
    )
    return max(0.0, found)


def advantage_interval(worlds: Bools, log_odds: Floats, confidence: float) -> Interval:
    """Return an interval of TPR - FPR of the decisions Lambda > 0 that holds whenever one looks.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], as of `betting_bound`.
        confidence: at all numbers of trials together, in (0, 1).

    Raises:
        InputError: as of `estimators.advantage`; an impossible confidence.
    """
    counts, tail = _counted(worlds, log_odds), significance(confidence) / 2
    # Who clears D where it was accused has the advantage with its sign changed.
    other = Accusations(
        counts.on_d - counts.true, counts.on_d, counts.others - counts.false, counts.others
    )
    low = _largest(lambda gap: counts.log_e(_ahead(gap)), -1.0, 1.0, tail)
    less = _largest(lambda gap: other.log_e(_ahead(gap)), -1.0, 1.0, tail)
    return Interval(low, -less, confidence)


def _counted(worlds: Bools, log_odds: Floats) -> Accusations:
    worlds, log_odds = check_trials(worlds, log_odds)
    true, false = log_odds[worlds] > 0, log_odds[~worlds] > 0
    return Accusations(int(true.sum()), true.size, int(false.sum()), false.size)


def _log_e(successes: int, trials: int, most: Floats) -> Floats:
    """Return the log of the mixture of bets against a success rate of at most each of `most`."""
    theta = LOG_ODDS[:, None]
    # log(1 - p + p e^theta), which is 0 for p = 0 and theta for p = 1.
    paid = np.log1p(most * np.expm1(theta))
    logs = theta * successes - trials * paid
    largest = logs.max(axis=0)
    return largest + np.log(np.exp(logs - largest).mean(axis=0))


def _private(epsilon: float, delta: float) -> Curve:
    """Return the curve of (epsilon, delta)-privacy."""

    def curve(rates: Floats) -> Floats:
        accusing = math.exp(epsilon) * rates + delta
        clearing = 1 - math.exp(-epsilon) * (1 - delta - rates)
        return np.clip(np.minimum(accusing, clearing), 0.0, 1.0)

    return curve


def _ahead(gap: float) -> Curve:
    """Return the curve of an advantage of at most `gap`."""
    return lambda rates: np.clip(rates + gap, 0.0, 1.0)


def _largest(log_e: Callable[[float], float], low: float, high: float, alpha: float) -> float:
    """Return the largest value between the two that is refuted, to 1e-4 from below; `low` if none.

    log_e: falls as the value grows, since what is allowed grows with it.
    """
    threshold = -math.log(alpha)
    if log_e(low) < threshold:
        return low
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if log_e(middle) >= threshold else (low, middle)
    return low
