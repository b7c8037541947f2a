"""A one-run bound for canaries that do not interfere, by order statistics.

With canaries along orthogonal directions and the same Gaussian noise in every direction, no event
reveals many canaries at once, and the guesses of `one_run` prove far more.

Assumptions: every round releases x_t = sum_i b_i v_i + s_t + noise. The v_i have length at most C,
are orthogonal and the same in every round. The noise is N(0, sigma_t^2 I). s_t is any function of
earlier releases and depends on the coins b only through them, for example the clipped sum of
records at the current model. Neither sigma_t nor s_t need be known.

1. The likelihood of b, given all x_t, is a product over the canaries, since the v_i are orthogonal.
   So given the releases (and s) the coins are independent, with log-odds L_i for canary i. Over the
   noise the L_i are independent, each N(+-mu_i^2/2, mu_i^2) by the coin, with mu_i <= mu =
   C sqrt(sum_t 1/sigma_t^2). So |L_i| is stochastically at most |N(mu^2/2, mu^2)|.
2. Given the L_i, guesses from the releases are right independently of each other, guess i with
   probability at most p_i = 1/(1 + exp(-|L_i|)).
3. Count the guesses with weights that fall from the surest to the least sure. Exchanging two
   guesses so that the larger p_i gets the larger weight makes the sum stochastically larger, and so
   does a larger p_i. So the sum is stochastically at most the sum of an adversary that ranks by
   |L_i| itself, with all mu_i = mu. Its law rises with mu.
4. With y = L/mu on the true side, N(mu/2, 1), this is the law of a signed-rank statistic: draw y_1
   to y_m, rank them by |y_i|, and add up the weights of the positive ones.

The weights are 2 for the surest `SUREST` of the canaries, 1 for the rest of the surest `SURE`, and
0 for all others. Given the (k+1)-th largest |y|, the k largest are independent draws above it,
which leaves an integral over two order statistics.

Sources:
    Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", 2023 (coins given the
    release); Dong, Roth and Su, "Gaussian differential privacy", 2019 (the law of L); van der
    Waerden, 1952, and Fraser, 1957 (normal scores); David and Nagaraja, "Order statistics", 2003,
    Section 2.5 (order statistics given another are those of independent draws).
"""

from functools import lru_cache

import numpy as np
from scipy.signal import fftconvolve
from scipy.special import betaincinv, betaln, expit, gammaln, ndtr, xlog1py, xlogy

from adversaries.arrays import Bools, Floats, Ints
from adversaries.bounds.guessing import LARGEST_MU, right_guesses
from adversaries.bounds.one_run import COINS, check_canary_scores
from adversaries.statistics.gaussian import epsilon as gaussian_epsilon
from adversaries.statistics.intervals import EpsilonBound, check_positive_delta, significance

SUREST, SURE = 1 / 4, 2 / 3
"""Share of the canaries whose guesses count twice, and share whose guesses count at all."""

FEWEST = 8
"""Fewest canaries that prove anything."""

STEP = 2.0**-10
"""Limits of mu are multiples of this, rounded down."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(48)

OUTSIDE = 1e-13
"""Probability of an order statistic beyond either end of its integral, which counts as refuting
nothing."""

ASSUMES = (
    f"{COINS}; canaries along orthogonal directions, in Gaussian noise that is independent and "
    "alike in all of them"
)


def order_bound(included: Bools, scores: Floats, delta: float, confidence: float) -> EpsilonBound:
    """Return the epsilon at `delta` of the largest mu that the weighted right guesses refute.

    Args:
        included: bool [m], True where the canary was in.
        scores: float64 [m].
        delta: in (0, 1).
        confidence: in (0, 1).

    Returns: the bound, with canaries, guesses (that count), right, guesses_twice (that count
    twice), right_twice and mu_low in its details; 0 with the `reason` where m < `FEWEST`.
    Raises InputError for bad arrays, or for delta or confidence out of range.
    """
    check_canary_scores(included, scores)
    check_positive_delta(delta)
    alpha, m = significance(confidence), scores.size
    few = m < FEWEST
    twice, once = (0, 0) if few else counted(m)
    right, surest = (int(right_guesses(included, scores, made)) for made in (once, twice))
    mu = 0.0 if few else float(largest_mus(m, np.array([right + surest]), alpha)[0])
    return EpsilonBound(
        epsilon=gaussian_epsilon(mu, delta),
        delta=delta,
        confidence=confidence,
        method="order statistics of right guesses about canaries in one run",
        assumes=ASSUMES,
        details={
            "canaries": m,
            "guesses": once,
            "right": right,
            "guesses_twice": twice,
            "right_twice": surest,
            "mu_low": mu,
        },
        reason=f"fewer than {FEWEST} canaries" if few else None,
    )


def order_bounds(included: Bools, scores: Floats, delta: float, confidence: float) -> Floats:
    """Return the epsilon of `order_bound` for every trial, [T].

    Args:
        included: bool [T, m], True where the canary was in.
        scores: float64 [T, m], not checked.
        delta: in (0, 1).
        confidence: of each bound, in (0, 1).

    Raises InputError for delta or confidence out of range.
    """
    check_positive_delta(delta)
    alpha, m = significance(confidence), scores.shape[-1]
    if m < FEWEST:
        return np.zeros(len(scores))
    sums = np.sum([right_guesses(included, scores, made) for made in counted(m)], axis=0)
    values, place = np.unique(sums, return_inverse=True)
    mus = largest_mus(m, values, alpha).tolist()
    return np.asarray([gaussian_epsilon(mu, delta) for mu in mus])[place]


def counted(canaries: int) -> tuple[int, int]:
    """Return how many guesses count twice, and how many at all, of m >= `FEWEST` canaries."""
    return int(SUREST * canaries), int(SURE * canaries)


def largest_mus(canaries: int, sums: Ints, alpha: float) -> Floats:
    """Return the largest mu, a multiple of `STEP`, that each sum refutes, [k]; 0 if none.

    Args:
        canaries: m, at least `FEWEST`.
        sums: int64 [k]: right guesses that count, plus right guesses that count twice.
        alpha: level of the test, in (0, 1).
    """
    low, high = np.zeros(len(sums), np.int64), np.full(len(sums), int(LARGEST_MU / STEP))
    # Each sum with a gap left halves it; equal multiples are computed once.
    while (unsure := high - low > 1).any():
        # The law of the sum rises with mu, and so does the p-value.
        middle = (low + high) // 2
        refuted = np.zeros(len(sums), np.bool_)
        for multiple in np.unique(middle[unsure]).tolist():
            rows = unsure & (middle == multiple)
            refuted[rows] = p_values(canaries, multiple * STEP)[sums[rows]] <= alpha
        low = np.where(unsure & refuted, middle, low)
        high = np.where(unsure & ~refuted, middle, high)
    return np.asarray(low * STEP, np.float64)


@lru_cache(maxsize=4096)
def p_values(canaries: int, mu: float) -> Floats:
    """Return the largest probability that canaries of this mu make each sum or a larger one.

    Args:
        canaries: m, at least `FEWEST`.
        mu: >= 0.

    Returns: float64 [n], for the sums 0 to n - 1.
    """
    twice, once = counted(canaries)
    # Shares of |y| above the order statistics at ranks twice + 1 and once + 1, and their weights.
    above, weights = _order_statistic(twice + 1, canaries - twice)
    further, given = _order_statistic(once - twice, canaries - once)
    # Given the first order statistic, the smaller |y| are independent draws below it.
    beyond = above[:, None] + (1 - above[:, None]) * further
    outer, inner = _size_at(above, mu), _size_at(beyond, mu)
    # The probability that y > 0 above the first order statistic, at it, and between the two.
    surest, at = ndtr(mu / 2 - outer) / above, expit(mu * outer)
    between = (ndtr(mu / 2 - inner) - ndtr(mu / 2 - outer)[:, None]) / (beyond - above[:, None])
    # The chance that y > 0 rises with |y|, so it lies between its values at both ends; rounding in
    # a quotient of small differences may leave that range.
    between = np.clip(between, expit(mu * inner), at[:, None])
    # Given the first: the sum of guesses that count twice (even places), and that count once.
    doubled = np.zeros((NODES.size, 2 * twice + 1))
    doubled[:, ::2] = _binomial(twice, surest)
    single = np.empty((NODES.size, once - twice))
    # The guesses strictly between both order statistics, averaged over the second one.
    for row, shares in enumerate(between):
        single[row] = given @ _binomial(once - twice - 1, shares)
    # The guess at the first order statistic also counts once; it is right with probability `at`.
    with_it = np.zeros((NODES.size, once - twice + 1))
    with_it[:, 1:] = at[:, None] * single
    with_it[:, :-1] += (1 - at[:, None]) * single
    # Given the first order statistic both sums are independent, so their laws are convolved.
    masses = weights @ fftconvolve(doubled, with_it, axes=1)
    # 1 minus the lower tail, so that mass outside of the integrals refutes nothing.
    return 1 - np.concatenate([[0.0], np.cumsum(masses)[:-1]])


def _order_statistic(a: int, b: int) -> tuple[Floats, Floats]:
    """Return nodes and weights for a Beta(a, b) variable, an order statistic of uniform draws."""
    # The upper end as a lower quantile of 1 - x, which keeps its digits near 1.
    ends = betaincinv(a, b, OUTSIDE), 1 - betaincinv(b, a, OUTSIDE)
    nodes = ends[0] + (ends[1] - ends[0]) * (NODES + 1) / 2
    # The density in logs, since its factors over- and underflow for many canaries.
    logs = xlogy(a - 1, nodes) + xlog1py(b - 1, -nodes) - betaln(a, b)
    weights: Floats = np.exp(logs) * WEIGHTS * (ends[1] - ends[0]) / 2
    return nodes, weights


def _size_at(share: Floats, mu: float) -> Floats:
    """Return the a with P[|y| > a] = share for y of N(mu/2, 1), by bisection; in its shape."""
    # The probability falls with a, and 40 deviations beyond the mean it is 0.
    low, high = np.zeros(share.shape), np.full(share.shape, mu / 2 + 40.0)
    for _ in range(60):
        middle = (low + high) / 2
        larger = ndtr(mu / 2 - middle) + ndtr(-mu / 2 - middle) > share
        low, high = np.where(larger, middle, low), np.where(larger, high, middle)
    return low


def _binomial(trials: int, shares: Floats) -> Floats:
    """Return the probabilities of 0 to n successes, [k, n + 1], for each of k shares."""
    counts = np.arange(trials + 1)
    # In logs, with 0 log 0 = 0 for shares of 0 and 1.
    ways = gammaln(trials + 1) - gammaln(counts + 1) - gammaln(trials - counts + 1)
    shares = np.clip(shares, 0.0, 1.0)[:, None]
    return np.exp(ways + xlogy(counts, shares) + xlog1py(trials - counts, -shares))
