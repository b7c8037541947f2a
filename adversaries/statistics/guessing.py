"""How many guesses about canaries are right, and which guarantees so many right ones refute.

All guesses are about one training, so that they depend on each other: what each guarantee allows of
their number takes a proof, one for (epsilon, delta) and one for Gaussian trade-off curves.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import scipy
from scipy.special import expit, ndtr, ndtri

from adversaries.statistics.trials import Bools, Floats, Ints

LARGEST_EPSILON, LARGEST_MU = 100.0, 40.0
"""No bound is above these: so much could only be proven by more canaries than anybody plants."""

GAPS = 8
"""Into how many parts a pass of the search for mu divides what is left: a power of 2, so that the
limits lie on one grid whatever else is searched for."""


def right_guesses(included: Bools, scores: Floats, guesses: int) -> npt.NDArray[np.int64]:
    """Return how many guesses are right, int64 [...].

    Half of the guesses, rounded up, say that the highest scores are in; the others, that the lowest
    are out. Equal scores are in an arbitrary order, always the same: that in which they are given
    may know the coins, as that of a file does whose rows are sorted by them.

    Args:
        included: bool [..., m], True where the canary was in.
        scores: float64 [..., m].
        guesses: how many, 0 to m.
    """
    canaries = scores.shape[-1]
    arbitrary = np.random.default_rng(0).permutation(canaries)
    order = np.lexsort((np.broadcast_to(arbitrary, scores.shape), -scores), axis=-1)
    ranked = np.take_along_axis(included, order, axis=-1)
    said_in = (guesses + 1) // 2
    right: npt.NDArray[np.int64] = ranked[..., :said_in].sum(-1)
    return right + (~ranked[..., canaries - guesses // 2 :]).sum(-1)


def binomial_p_value(
    canaries: int, guesses: int, right: int, epsilon: float, delta: float
) -> float:
    """Return the most probable that (epsilon, delta)-privacy makes so many right guesses.

    P[right >= v] <= beta(v) + 2 m delta max_i (beta(v - i) - beta(v))/i, 1 <= i <= v, where beta(v)
    = P[Binomial(guesses, e^epsilon/(1 + e^epsilon)) >= v].

    Args:
        canaries: m.
        guesses: their number, fixed in advance, at most m.
        right: v, how many of them are right.
        epsilon: >= 0.
        delta: in [0, 1).

    Source:
        Steinke et al., 2023, Theorem 5.2 for fair coins, and Algorithm 1's p-value in their
        appendix.
    """
    steps = np.arange(1, right + 1)
    beta = float(scipy.stats.binom.sf(right - 1, guesses, expit(epsilon)))
    if not right or not delta:
        return beta
    # P[v - i <= Binomial < v], from the point masses: the difference of two tails cancels.
    masses = scipy.stats.binom.pmf(right - steps, guesses, expit(epsilon))
    return min(1.0, beta + 2 * canaries * delta * float((np.cumsum(masses) / steps).max()))


@lru_cache(maxsize=4096)
def binomial_epsilon(canaries: int, guesses: int, right: int, delta: float, alpha: float) -> float:
    """Return an epsilon that so many right guesses refute at level alpha, by bisection; 0 if none.

    Where the p-value is not monotone in epsilon this may be a smaller one than the largest. It is
    valid all the same: what refutes an epsilon refutes all smaller ones, which promise more.

    Args:
        canaries: m.
        guesses: their number, fixed in advance, at most m.
        right: how many of them are right.
        delta: in [0, 1).
        alpha: level of the test, in (0, 1).

    Returns:
        epsilon, to 1e-6 from below, at most `LARGEST_EPSILON`.
    """
    low, high = 0.0, LARGEST_EPSILON
    if not guesses or binomial_p_value(canaries, guesses, right, low, delta) > alpha:
        return 0.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        if binomial_p_value(canaries, guesses, right, middle, delta) <= alpha:
            low = middle
        else:
            high = middle
    return low


def gaussian_refuted(canaries: int, guesses: int, rights: Ints, mus: Floats, alpha: float) -> Bools:
    """Return which mu-GDP mechanisms make so many right guesses less often than alpha, bool [k, n].

    With p_s the probability of s right guesses of R, a mechanism of trade-off curve f satisfies,
    for every set of counts, sum_s (s/m) p_s <= 1 - f(sum_s ((R - s + 1)/m) p_(s-1)): turn the coin
    of one canary, guessed right, and the same release guesses it wrong and one less right; average
    over the canaries, 1 - f being concave. For the tail s > i this is

        (1/m) ((R - i) P_i - S_(i+1)) >= g((1/m) ((i + 1) P_(i+1) + S_(i+2))),

    P_i = P[at least i right], S_i = P_i + P_(i+1) + ..., g the inverse of 1 - f, for mu-GDP
    Phi(Phi^-1(x) - mu). The P_i that this asks for grows with the tails above i, so that the least
    tails follow from P_v = alpha and nothing above, one after the other; P_0 > 1 refutes mu.

    Args:
        canaries: m.
        guesses: R, fixed in advance, at most m.
        rights: int64 [k], numbers of right guesses.
        mus: float64 [k, n], those to try for each.
        alpha: level of the test, in (0, 1).

    Source:
        Mahloujifar, Melis and Chaudhuri, "Auditing f-differential privacy in one run", 2024.
    """
    # Largest counts first: those whose recursion has begun at i are the first rows.
    order = np.argsort(-rights)
    begun = np.searchsorted(-rights[order], -np.arange(rights.max(initial=0)), side="left")
    ordered, tails = mus[order], np.full(mus.shape, alpha)  # P_(i+1)
    sums, aboves = tails.copy(), np.zeros(mus.shape)  # S_(i+1), S_(i+2)
    found = np.zeros(mus.shape, dtype=np.bool_)
    # From the largest count down to 0, of the rows that have begun: P_i from what lies above i.
    for i in range(len(begun) - 1, -1, -1):
        tail, summed, above = (array[: begun[i]] for array in (tails, sums, aboves))
        # What the right side asks of P_i, by g(x) = Phi(Phi^-1(x) - mu).
        mass = np.minimum(1.0, ((i + 1) * tail + above) / canaries)
        least = (canaries * ndtr(ndtri(mass) - ordered[: begun[i]]) + summed) / (guesses - i)
        # A tail above 1 refutes; it stays at 1 so that the rest remains defined.
        np.maximum(tail, least, out=tail)
        found[: begun[i]] |= tail > 1
        np.minimum(tail, 1.0, out=tail)
        # For the next i, S_(i+2) is what S_(i+1) was, and S_(i+1) has P_i besides.
        above[:] = summed
        summed += tail
    # Back in the order in which the counts were given.
    refuted = np.empty_like(found)
    refuted[order] = found
    return refuted


def gaussian_mus(canaries: int, guesses: int, rights: Ints, alpha: float) -> Floats:
    """Return the largest mu, to 1e-6, that each number of right guesses refutes, [k]; 0 if none.

    A mu does not depend on which others are asked for.

    Args:
        canaries: m.
        guesses: their number, fixed in advance, at most m.
        rights: int64 [k], numbers of right guesses.
        alpha: level of the test, in (0, 1).
    """
    low, width = np.zeros(len(rights)), LARGEST_MU
    # Refutation is monotone in mu: a larger one allows more. Each pass keeps one gap of GAPS.
    while width > 1e-6:
        width /= GAPS
        mus = low[:, None] + width * np.arange(1, GAPS)
        low += width * gaussian_refuted(canaries, guesses, rights, mus, alpha).sum(-1)
    return low
