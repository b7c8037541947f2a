"""One-run audits: m canaries, each in or out of the whole training by its own coin.

The highest scores are guessed to be in and the lowest to be out. All guesses are about one training
and depend on each other, so it takes a proof how many right guesses a guarantee allows: one for
(epsilon, delta) (Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", 2023),
and one for Gaussian trade-off curves. The coins are fair and independent, and scores never depend
directly on them. Neighbours are add-remove and differ in one canary.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from scipy.special import expit, ndtr, ndtri

from adversaries.arrays import Bools, Floats
from adversaries.bounds.canaries import effect
from adversaries.errors import InputError
from adversaries.statistics.gaussian import epsilon as gaussian_epsilon
from adversaries.statistics.intervals import EpsilonBound, Interval, check_delta, significance

SHARE = 8
"""By default, guesses are made about one canary in so many, which is best near m = 1000."""

LARGEST_EPSILON, LARGEST_MU = 100.0, 40.0
"""Largest bounds: proving more would take more canaries than a training can hold."""

GAPS = 8
"""Parts into which a pass of the search for mu divides the gap."""

LARGEST_CONVERTED = 1e6
"""Larger estimates of mu count as infinite: the scores hardly vary."""

COINS = "fair, independent coins that affect the scores only through what was released"


@dataclass(frozen=True)
class CanaryEstimate:
    """An estimate from the canaries' scores, which proves nothing.

    Attributes:
        mu: the difference of the mean scores over their common standard deviation.
        mu_interval: for mu >= 0; holds only under `assumes`, which the training does not ensure.
        epsilon: of a Gaussian mechanism with this mu at `delta`.
        epsilon_interval: from the ends of `mu_interval`.
        delta: of the guarantee.
        method: method of computation, in words.
        assumes: assumptions of the intervals, in words.
        reason: why there is no estimate, else None.
    """

    mu: float
    mu_interval: Interval
    epsilon: float
    epsilon_interval: Interval
    delta: float
    method: str
    assumes: str
    reason: str | None = None


def bounds(
    included: Bools, scores: Floats, delta: float, confidence: float, guesses: int = 0
) -> dict[str, EpsilonBound]:
    """Return the epsilon that the right guesses prove, by name.

    "binomial" holds for any (epsilon, delta)-private training; "f_dp" converts the largest mu that
    the guesses refute, for a training with a Gaussian trade-off curve. The numbers of canaries,
    guesses and right guesses are in their details.

    Args:
        included: bool [m], True where the canary was in.
        scores: float64 [m].
        delta: in (0, 1).
        confidence: of each bound by itself, in (0, 1).
        guesses: their number, decided before the scores were seen; 0 for one canary in `SHARE`.

    Raises InputError for bad arrays, guesses, delta or confidence.
    """
    check_canary_scores(included, scores, guesses)
    check_delta(delta)
    alpha, canaries = significance(confidence), scores.size
    made = guesses or max(1, canaries // SHARE)
    right = right_guesses(included, scores, made)
    counted: dict[str, float] = {"canaries": canaries, "guesses": made, "right": right}
    mu = gaussian_mu(canaries, made, right, alpha)
    return {
        "binomial": EpsilonBound(
            epsilon=binomial_epsilon(canaries, made, right, delta, alpha),
            delta=delta,
            confidence=confidence,
            method="binomial limit of right guesses about canaries in one run",
            assumes=COINS,
            details=counted,
        ),
        "f_dp": EpsilonBound(
            epsilon=gaussian_epsilon(mu, delta),
            delta=delta,
            confidence=confidence,
            method="f-DP limit of right guesses about canaries in one run, Gaussian trade-off "
            "curves",
            assumes=f"{COINS}; a Gaussian trade-off curve, as steps without sampling have",
            details=counted | {"mu_low": mu},
        ),
    }


def client_canary_estimate(
    included: Bools, scores: Floats, delta: float, confidence: float
) -> CanaryEstimate:
    """Return an estimate from the standardised difference of the scores in and out.

    The paper compares a normal law of the canaries' scores with canaries that took no part. Here
    the canaries that the coin left out give the other law, and both laws share one variance. The
    interval is the two-sample t statistic's (`adversaries.bounds.canaries.effect`).

    Args:
        included: bool [m], True where the canary was in.
        scores: float64 [m].
        delta: in (0, 1).
        confidence: of the intervals, in (0, 1).

    Raises InputError for bad arrays, delta or confidence.
    Source: Andrew et al., "One-shot empirical privacy estimation", 2024.
    """
    check_canary_scores(included, scores)
    measured = effect(included, _moderate(scores), confidence)
    mu, interval = (0.0, Interval(0.0, math.inf, confidence))
    if measured.reason is None:
        mu, interval = measured.mu, measured.interval
    low, high = (_gaussian_epsilon(end, delta) for end in (interval.low, interval.high))
    return CanaryEstimate(
        mu=mu,
        mu_interval=interval,
        epsilon=_gaussian_epsilon(mu, delta),
        epsilon_interval=Interval(low, high, confidence),
        delta=delta,
        method="standardised difference of the scores of canaries in and out",
        assumes="independent normal scores of one variance, in and out: not checked, no guarantee",
        reason=measured.reason and measured.reason.replace("rounds", "canaries"),
    )


def check_canary_scores(included: Bools, scores: Floats, guesses: int = 0) -> None:
    """Raise InputError for arrays or a number of guesses that no audit can use.

    Args:
        included: bool [m], True where the canary was in.
        scores: float64 [m].
        guesses: their number; 0 for one canary in `SHARE`.

    Raises InputError for arrays of unequal shapes, infinite scores, or too many guesses.
    """
    if scores.ndim != 1 or not scores.size or included.shape != scores.shape:
        raise InputError(
            f"included is {included.shape} and scores {scores.shape}; give both as [canaries]"
        )
    if not np.isfinite(scores).all():
        raise InputError("scores are not finite numbers: a model diverged; lower the learning rate")
    if not 0 <= guesses <= scores.size:
        raise InputError(
            f"{guesses} guesses about {scores.size} canaries; give 1 to {scores.size}, or 0 for "
            f"one in {SHARE}"
        )


def right_guesses(included: Bools, scores: Floats, guesses: int) -> int:
    """Return the number of right guesses.

    Half of the guesses, rounded up, say that the highest scores are in; the others say that the
    lowest are out. Equal scores are put in an arbitrary fixed order, not the given one.

    Args:
        included: bool [m], True where the canary was in.
        scores: float64 [m].
        guesses: number of guesses, 0 to m.
    """
    arbitrary = np.random.default_rng(0).permutation(scores.size)
    # The last key comes first: falling score, then an order that does not depend on the coins.
    ranked = included[np.lexsort((arbitrary, -scores))]
    guessed_in = (guesses + 1) // 2
    out = ranked[scores.size - guesses // 2 :]
    return int(ranked[:guessed_in].sum() + (~out).sum())


def binomial_p_value(
    canaries: int, guesses: int, right: int, epsilon: float, delta: float
) -> float:
    """Return the largest probability of so many right guesses under (epsilon, delta)-privacy.

    P[right >= v] <= beta(v) + 2 m delta max_i (beta(v - i) - beta(v))/i, 1 <= i <= v, where beta(v)
    = P[Binomial(guesses, e^epsilon/(1 + e^epsilon)) >= v].

    Args:
        canaries: m.
        guesses: their number, fixed in advance, at most m.
        right: v, the number of right guesses.
        epsilon: >= 0.
        delta: in [0, 1).

    Source: Steinke et al., 2023, Theorem 5.2 for fair coins, and Algorithm 1's p-value in their
    appendix.
    """
    steps = np.arange(1, right + 1)
    beta = float(scipy.stats.binom.sf(right - 1, guesses, expit(epsilon)))
    if not right or not delta:
        return beta
    # P[v - i <= Binomial < v] from the point masses: the difference of two tails would cancel.
    masses = scipy.stats.binom.pmf(right - steps, guesses, expit(epsilon))
    return min(1.0, beta + 2 * canaries * delta * float((np.cumsum(masses) / steps).max()))


@lru_cache(maxsize=4096)
def binomial_epsilon(canaries: int, guesses: int, right: int, delta: float, alpha: float) -> float:
    """Return an epsilon that so many right guesses refute at level alpha, by bisection; 0 if none.

    Args:
        canaries: m.
        guesses: their number, fixed in advance, at most m.
        right: number of right guesses.
        delta: in [0, 1).
        alpha: level of the test, in (0, 1).

    Returns: epsilon, to 1e-6 from below, at most `LARGEST_EPSILON`.
    """
    low, high = 0.0, LARGEST_EPSILON
    if not guesses or binomial_p_value(canaries, guesses, right, low, delta) > alpha:
        return 0.0
    # The p-value grows with epsilon; `low` is always refuted, so the result is on the safe side.
    while high - low > 1e-6:
        middle = (low + high) / 2
        if binomial_p_value(canaries, guesses, right, middle, delta) <= alpha:
            low = middle
        else:
            high = middle
    return low


def gaussian_refuted(canaries: int, guesses: int, right: int, mus: Floats, alpha: float) -> Bools:
    """Return which mu-GDP mechanisms make so many right guesses less often than alpha, bool [n].

    With p_s the probability of s right guesses of R, a mechanism with trade-off curve f satisfies,
    for every set of counts, sum_s (s/m) p_s <= 1 - f(sum_s ((R - s + 1)/m) p_(s-1)): turning the
    coin of one canary that was guessed right makes one guess less right. For the tail s > i this is

        (1/m) ((R - i) P_i - S_(i+1)) >= g((1/m) ((i + 1) P_(i+1) + S_(i+2))),

    P_i = P[at least i right], S_i = P_i + P_(i+1) + ..., g the inverse of 1 - f, for mu-GDP
    Phi(Phi^-1(x) - mu). The least tails follow one after the other from P_v = alpha and 0 above;
    P_0 > 1 refutes mu.

    Args:
        canaries: m.
        guesses: R, fixed in advance, at most m.
        right: number of right guesses.
        mus: float64 [n], values of mu to try.
        alpha: level of the test, in (0, 1).

    Source: Mahloujifar, Melis and Chaudhuri, "Auditing f-differential privacy in one run", 2024.
    """
    tail = np.full(mus.shape, alpha)  # P_(i+1)
    summed, above = tail.copy(), np.zeros(mus.shape)  # S_(i+1), S_(i+2)
    refuted = np.zeros(mus.shape, dtype=np.bool_)
    # From the largest count down to 0: P_i from the tails above i.
    for i in range(right - 1, -1, -1):
        # The least P_i that the inequality allows, by g(x) = Phi(Phi^-1(x) - mu).
        mass = np.minimum(1.0, ((i + 1) * tail + above) / canaries)
        least = (canaries * ndtr(ndtri(mass) - mus) + summed) / (guesses - i)
        # A tail above 1 refutes mu; it stays at 1 so that the recursion remains defined.
        tail = np.maximum(tail, least)
        refuted |= tail > 1
        tail = np.minimum(tail, 1.0)
        above, summed = summed, summed + tail
    return refuted


@lru_cache(maxsize=4096)
def gaussian_mu(canaries: int, guesses: int, right: int, alpha: float) -> float:
    """Return the largest mu, to 1e-6, that so many right guesses refute; 0 if none.

    Args:
        canaries: m.
        guesses: their number, fixed in advance, at most m.
        right: number of right guesses.
        alpha: level of the test, in (0, 1).
    """
    low, width = 0.0, LARGEST_MU
    # Refutation is monotone in mu: a larger mu allows more. Each pass keeps one gap of GAPS.
    while width > 1e-6:
        width /= GAPS
        mus = low + width * np.arange(1, GAPS, dtype=np.float64)
        low += width * int(gaussian_refuted(canaries, guesses, right, mus, alpha).sum())
    return low


def _moderate(scores: Floats) -> Floats:
    """Return scores [..., m] times a power of two, so that squares do not over- or underflow."""
    largest = np.abs(scores).max(axis=-1, keepdims=True)
    # A power of two changes the exponents only, so no rounding is added.
    return np.ldexp(scores, -np.frexp(largest)[1])


def _gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of a mu of any sign; infinite above `LARGEST_CONVERTED`."""
    return math.inf if mu > LARGEST_CONVERTED else gaussian_epsilon(max(0.0, mu), delta)
