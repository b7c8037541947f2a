"""E-processes: evidence that is valid at every time, for any number of further trials.

An e-process against a hypothesis is a process E_t >= 0, E_0 = 1, at most a supermartingale under
every law in the hypothesis. By Ville's inequality it ever reaches 1/alpha with probability at most
alpha, whenever an auditor looks or stops. Averages are e-processes again, from which `closed`
accuses no true hypothesis with probability 1 - alpha (the closure principle).

For trials of the identification game: let TPR be the probability, given the past, that D is accused
in a trial on D, and FPR in a trial on D'. A mechanism with trade-off curve f has
TPR <= 1 - f(FPR). Against TPR <= t, a bet that the odds are exp(theta) times those of t pays

    exp(theta accused) / (1 - t + t exp(theta)),    theta > 0.

Its mean is at most 1 for every TPR <= t, and it falls as t grows. The bet against FPR >= x is the
same for clearing D'. Their product is an e-process against {TPR <= t, FPR >= x}, and the least
product over the curve is one against the hypothesis TPR <= 1 - f(FPR), the union of these sets. A
mixture over theta covers unknown rates.

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

from adversaries.arrays import Bools, Floats
from adversaries.statistics.intervals import EpsilonBound, Interval, check_delta, significance
from adversaries.statistics.trials import ONE_WORLD, check_trials

LOG_ODDS = 2.0 ** (np.arange(-10, 6) / 2)
"""theta: factors by which bets assume larger log-odds than allowed, all with the same weight."""

GRID = np.concatenate([[0.0], np.geomspace(1e-9, 1e-2, 15), np.linspace(0.03, 1.0, 33)])
"""False positive rates between which the least product is first bounded from below."""

FINER, PASSES = 16, 3
"""Parts into which each gap that may hold the least product is divided, and number of passes."""

LARGEST = 100.0
"""Largest epsilon or mu that is proven."""

Curve = Callable[[Floats], Floats]
"""Maps false positive rates to the largest allowed true positive rates; it does not fall."""


def closed(log_e: Floats) -> Floats:
    """Return log e-values [k] that hold for all hypotheses together.

    Each is the least average over the groups that contain the hypothesis. If at one time all values
    belong to e-processes on the same observations, the probability is at most alpha that any true
    hypothesis ever reaches log 1/alpha.

    log_e: float64 [k], at one time; 0 for a process that has not begun.
    Source:
        Vovk and Wang, 2021, Algorithm 2.
    """
    order = np.argsort(log_e)
    ascending = log_e[order]
    # sums[j]: log of the sum of the j smallest.
    sums = np.concatenate([[-np.inf], np.logaddexp.accumulate(ascending)])
    sizes = np.arange(1, log_e.size + 1)
    least = np.empty_like(log_e)
    for rank, value in enumerate(ascending):
        # Groups with j smaller values, for each j; then groups of the smallest values that have it.
        fewer = np.logaddexp(sums[: rank + 1], value) - np.log(sizes[: rank + 1])
        more = sums[rank + 1 :] - np.log(sizes[rank:])
        least[order[rank]] = min(fewer.min(), more.min())
    return least


@dataclass(frozen=True)
class Accusations:
    """Numbers of accusations of D, in trials on D and on D'.

    Attributes:
        true: accusations in trials on D.
        on_d: number of trials on D.
        false: accusations in trials on D'.
        others: number of trials on D'.
    """

    true: int
    on_d: int
    false: int
    others: int

    @classmethod
    def of(cls, worlds: Bools, log_odds: Floats) -> "Accusations":
        """Return the counts for the decision Lambda > 0.

        Args:
            worlds: bool [T], True where the model was trained on D.
            log_odds: float64 [T], the final Lambda for D, or any score that decides D above 0.
        """
        worlds, log_odds = check_trials(worlds, log_odds)
        true, false = log_odds[worlds] > 0, log_odds[~worlds] > 0
        return cls(int(true.sum()), true.size, int(false.sum()), false.size)

    @property
    def reason(self) -> str | None:
        """Why nothing follows from the counts, None if there are trials of both worlds."""
        return None if self.on_d and self.others else ONE_WORLD

    def log_e(self, curve: Curve) -> float:
        """Return the log of the e-process against TPR <= curve(FPR).

        curve: the largest true positive rate at every false positive rate.
        """
        low, high, smallest = GRID[:-1], GRID[1:], math.inf
        for _ in range(PASSES):
            # `least` bounds the products in a gap from below: bets against TPR <= t fall in t, and
            # bets against FPR >= x rise in x. `at_low` is the product at the gap's lower end.
            false = _log_e(self.others - self.false, self.others, 1 - low)
            least = _log_e(self.true, self.on_d, curve(high)) + false
            at_low = _log_e(self.true, self.on_d, curve(low)) + false
            smallest = min(smallest, float(at_low.min()))
            if not (lower := least < smallest).any():
                return smallest
            # Divide only the gaps that may hold a smaller product.
            steps = np.linspace(low[lower], high[lower], FINER + 1)
            low, high = steps[:-1].ravel(), steps[1:].ravel()
        return min(smallest, float(least.min()))


def betting_bound(worlds: Bools, log_odds: Floats, delta: float, confidence: float) -> EpsilonBound:
    """Return the epsilon that the decisions Lambda > 0 refute, valid at every number of trials.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D, or any score that decides D above 0.
        delta: of the guarantee that is bounded, in [0, 1).
        confidence: in (0, 1).

    Returns: the bound, with the rates and the interval of the advantage, which also holds at every
    number of trials (by itself); 0 with the `reason` without trials of both worlds.
    Raises InputError for delta or confidence out of range, or for trials that `check_trials`
    refuses.
    """
    check_delta(delta)
    counts, alpha = Accusations.of(worlds, log_odds), significance(confidence)
    both = counts.reason is None
    interval = advantage_interval(worlds, log_odds, confidence)
    epsilon = _largest(lambda value: counts.log_e(_private(value, delta)), 0.0, LARGEST, alpha)
    return EpsilonBound(
        epsilon=max(0.0, epsilon) if both else 0.0,
        delta=delta,
        confidence=confidence,
        method="e-process of bets on the decisions at the threshold 0",
        assumes="independent trials, whose number may depend on their results",
        trusts_noise=False,
        details={
            "true_positive_rate": counts.true / counts.on_d,
            "false_positive_rate": counts.false / counts.others,
            "advantage_low": interval.low,
            "advantage_high": interval.high,
        }
        if both
        else {},
        reason=counts.reason,
    )


def betting_mu(worlds: Bools, log_odds: Floats, confidence: float) -> float:
    """Return the mu of Gaussian privacy that the decisions refute, valid at every number of trials.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D, or any score that decides D above 0.
        confidence: in (0, 1).

    Raises InputError for confidence out of range, or for trials that `check_trials` refuses.
    """
    counts = Accusations.of(worlds, log_odds)
    mu = _largest(
        # 1 - f of mu-Gaussian privacy: TPR <= Phi(Phi^-1(FPR) + mu).
        lambda mu: counts.log_e(lambda rates: ndtr(ndtri(rates) + mu)),
        0.0,
        LARGEST,
        significance(confidence),
    )
    return max(0.0, mu)


def advantage_interval(worlds: Bools, log_odds: Floats, confidence: float) -> Interval:
    """Return an interval of TPR - FPR of the decisions, valid at every number of trials.

    Args:
        worlds: bool [T], True where the model was trained on D.
        log_odds: float64 [T], the final Lambda for D, or any score that decides D above 0.
        confidence: at all numbers of trials together, in (0, 1).

    Raises InputError for confidence out of range, or for trials that `check_trials` refuses.
    """
    counts, tail = Accusations.of(worlds, log_odds), significance(confidence) / 2
    # The opposite decision has the negative advantage: its lower limit gives the upper one.
    other = Accusations(
        counts.on_d - counts.true, counts.on_d, counts.others - counts.false, counts.others
    )
    low = _largest(lambda gap: counts.log_e(_ahead(gap)), -1.0, 1.0, tail)
    less = _largest(lambda gap: other.log_e(_ahead(gap)), -1.0, 1.0, tail)
    return Interval(low, -less, confidence)


def _log_e(successes: int, trials: int, most: Floats) -> Floats:
    """Return the log of a mixture of bets against success rates of at most each of `most`."""
    theta = LOG_ODDS[:, None]
    # log(1 - p + p e^theta), which is 0 for p = 0 and theta for p = 1.
    paid = np.log1p(most * np.expm1(theta))
    logs = theta * successes - trials * paid
    # The mean of bets over theta is a bet again; relative to the largest one, none overflows.
    largest = logs.max(axis=0)
    return largest + np.log(np.exp(logs - largest).mean(axis=0))


def _private(epsilon: float, delta: float) -> Curve:
    def curve(rates: Floats) -> Floats:
        # TPR <= e^epsilon FPR + delta, and the same inequality for TNR and FNR, solved for TPR.
        accusing = math.exp(epsilon) * rates + delta
        clearing = 1 - math.exp(-epsilon) * (1 - delta - rates)
        return np.clip(np.minimum(accusing, clearing), 0.0, 1.0)

    return curve


def _ahead(gap: float) -> Curve:
    return lambda rates: np.clip(rates + gap, 0.0, 1.0)


def _largest(log_e: Callable[[float], float], low: float, high: float, alpha: float) -> float:
    """Return the largest refuted value in [low, high], to 1e-4 from below; `low` if none is.

    log_e: falls as the value grows, because a larger value allows more.
    """
    threshold = -math.log(alpha)
    if log_e(low) < threshold:
        return low
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if log_e(middle) >= threshold else (low, middle)
    return low
