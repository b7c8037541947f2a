"""The number of right guesses about canaries, and the guarantees that it refutes.

All guesses are about one training and depend on each other. So it takes a proof how many right
guesses a guarantee allows: one for (epsilon, delta), and one for Gaussian trade-off curves.
"""

from functools import lru_cache

import numpy as np
import scipy
from scipy.special import expit, ndtr, ndtri

from adversaries.arrays import Bools, Floats, Ints

LARGEST_EPSILON, LARGEST_MU = 100.0, 40.0
"""Largest bounds: proving more would take more canaries than a training can hold."""

GAPS = 8
"""Parts into which a pass of the search for mu divides the gap: a power of 2, so that the limits
lie on one grid for any other searched counts."""


def right_guesses(included: Bools, scores: Floats, guesses: int) -> Ints:
    """Return the number of right guesses, int64 [...].

    Half of the guesses, rounded up, say that the highest scores are in; the others say that the
    lowest are out. Equal scores are put in an arbitrary fixed order, not the given one.

    Args:
        included: bool [..., m], True where the canary was in.
        scores: float64 [..., m].
        guesses: number of guesses, 0 to m.
    """
    canaries = scores.shape[-1]
    arbitrary = np.random.default_rng(0).permutation(canaries)
    # The last key comes first: falling score, then an order that does not depend on the coins.
    order = np.lexsort((np.broadcast_to(arbitrary, scores.shape), -scores), axis=-1)
    ranked = np.take_along_axis(included, order, axis=-1)
    included_guesses = (guesses + 1) // 2
    right: Ints = ranked[..., :included_guesses].sum(-1)
    return right + (~ranked[..., canaries - guesses // 2 :]).sum(-1)


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


def gaussian_refuted(canaries: int, guesses: int, rights: Ints, mus: Floats, alpha: float) -> Bools:
    """Return which mu-GDP mechanisms make so many right guesses less often than alpha, bool [k, n].

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
        rights: int64 [k], numbers of right guesses.
        mus: float64 [k, n], values of mu to try for each number.
        alpha: level of the test, in (0, 1).

    Source: Mahloujifar, Melis and Chaudhuri, "Auditing f-differential privacy in one run", 2024.
    """
    # Rows in descending order of counts: the first begun[i] rows have begun their recursion at i.
    order = np.argsort(-rights)
    begun = np.searchsorted(-rights[order], -np.arange(rights.max(initial=0)), side="left")
    ordered, tails = mus[order], np.full(mus.shape, alpha)  # P_(i+1)
    sums, aboves = tails.copy(), np.zeros(mus.shape)  # S_(i+1), S_(i+2)
    is_refuted = np.zeros(mus.shape, dtype=np.bool_)
    # From the largest count down to 0: P_i from the tails above i, in the rows that have begun.
    for i in range(len(begun) - 1, -1, -1):
        tail, summed, above = (array[: begun[i]] for array in (tails, sums, aboves))
        # The least P_i that the inequality allows, by g(x) = Phi(Phi^-1(x) - mu).
        mass = np.minimum(1.0, ((i + 1) * tail + above) / canaries)
        least = (canaries * ndtr(ndtri(mass) - ordered[: begun[i]]) + summed) / (guesses - i)
        # A tail above 1 refutes mu; it stays at 1 so that the recursion remains defined.
        np.maximum(tail, least, out=tail)
        is_refuted[: begun[i]] |= tail > 1
        np.minimum(tail, 1.0, out=tail)
        # For the next i, S_(i+2) is the old S_(i+1), and S_(i+1) gains P_i.
        above[:] = summed
        summed += tail
    # Undo the sorting of rows.
    refuted = np.empty_like(is_refuted)
    refuted[order] = is_refuted
    return refuted


def gaussian_mus(canaries: int, guesses: int, rights: Ints, alpha: float) -> Floats:
    """Return the largest mu, to 1e-6, that each number of right guesses refutes, [k]; 0 if none.

    Args:
        canaries: m.
        guesses: their number, fixed in advance, at most m.
        rights: int64 [k], numbers of right guesses.
        alpha: level of the test, in (0, 1).
    """
    low, width = np.zeros(len(rights)), LARGEST_MU
    # Refutation is monotone in mu: a larger mu allows more. Each pass keeps one gap of GAPS.
    while width > 1e-6:
        width /= GAPS
        mus = low[:, None] + width * np.arange(1, GAPS)
        low += width * gaussian_refuted(canaries, guesses, rights, mus, alpha).sum(-1)
    return low
