"""Bayesian differential privacy: privacy loss for people like the ones in the data.

Triastcyn and Faltings, "Bayesian differential privacy for machine learning" (2020). The accountant
takes the expectation over a record x' from the distribution of the data, which it estimates from
distances between sampled gradients: Pr[L > epsilon] <= delta, over the noise and x', with the
probability gamma that the sample misled the estimator. It says nothing about outliers.
"""

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln
from scipy.stats import t as student

from adversaries.arrays import Floats, Ints
from fedsim.privacy.mechanism import Neighbouring

GAMMA = 1e-16
"""Probability that the estimate of one step is too small, from the paper's experiments."""

ORDERS: Ints = np.array(
    [*range(1, 33), 36, 40, 48, 56, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024]
)
"""Orders lambda that are searched: all small ones, then sparser ones."""

BLOCK = 2**20
"""Numbers in a block of the computation, which bounds the memory."""


def log_moments(
    orders: npt.ArrayLike,
    distances: npt.ArrayLike,
    sigma: npt.ArrayLike,
    sampling_rate: float = 1.0,
    neighbouring: Neighbouring = Neighbouring.ADD_REMOVE,
) -> Floats:
    """Return log E[e^(lambda L)] of one Gaussian step for every distance and order, [..., O].

    add-remove: c(lambda) = log E exp(K(K-1) d^2/(2 sigma^2)), K ~ Binomial(lambda + 1, q), of the
    mixture (1-q) N(0, sigma^2) + q N(d, sigma^2) against N(0, sigma^2); the other direction is
    never larger (Mironov, Talwar and Zhang, 2019, Theorem 5).

    replace: two mixtures, (1-q) N(0, sigma^2 I) + q N(g, sigma^2 I) and the same with g'. Both
    records use one coin, and (P, Q) -> E_Q (P/Q)^(lambda + 1) is jointly convex. So the moment is
    at most (1-q) 1 + q exp(lambda (lambda + 1) |g - g'|^2/(2 sigma^2)), an upper bound.

    distances: [...], d or |g - g'|: how far a record moves the sum.
    sigma: broadcast with them; 0 gives infinity, unless the distance is 0 too.
    sampling_rate: q of Poisson sampling, in (0, 1].
    Source: Theorem 3.
    """
    chosen, each = _orders(orders), np.asarray(distances, dtype=np.float64)
    noise = np.asarray(sigma, dtype=np.float64)
    each, noise = np.broadcast_arrays(each, noise)
    # A distance of 0 leaks nothing, even without noise.
    with np.errstate(divide="ignore", over="ignore"):
        ratios = np.divide(each, noise, out=np.zeros(each.shape), where=each > 0) ** 2 / 2
    flat = ratios.reshape(-1, 1)
    with np.errstate(divide="ignore", over="ignore"):
        # A full batch has log E e^(lambda L) = lambda (lambda + 1) d^2/(2 sigma^2).
        moments: Floats = flat * (chosen * (chosen + 1.0))
        if sampling_rate < 1 and neighbouring is Neighbouring.REPLACE:
            # log((1 - q) + q e^m) = log(1 + q (e^m - 1)), in a form that stays exact for small m.
            moments = np.logaddexp(0.0, np.log(sampling_rate) + _log_expm1(moments))
        elif sampling_rate < 1:
            moments = _sampled(flat, chosen, sampling_rate)
    return moments.reshape(*each.shape, len(chosen))


def estimate(log_moments: Floats, steps: int, gamma: float = GAMMA) -> Floats:
    """Return the privacy cost of one step from the log-moments of n sampled records, [..., O].

    Under the Hoelder exponent T of Theorem 1, with L_j = T c_j,

        cost = (1/T) log( mean_j e^(L_j) + t^-1_(n-1)(1 - gamma) std_j(e^(L_j)) / sqrt(n - 1) )

    with the 1/n standard deviation. The costs of T steps add up. Student's quantile cannot account
    for rare large moments that the sample lacks.

    log_moments: [..., n, O], c_j(lambda) of each record, n >= 2.
    steps: T, at least 1.
    gamma: probability that the expectation exceeds the estimate, in (0, 0.5].
    Source: Eq. 14.
    """
    records = log_moments.shape[-2]
    # Exponents are taken relative to the largest record's, so that no exponential overflows.
    with np.errstate(over="ignore"):
        exponents = steps * log_moments
    top = exponents.max(axis=-2)
    shift = np.where(np.isfinite(top), top, 0.0)
    # isf, because 1 - 1e-16 rounds; expm1, because costs may be far below 1e-16.
    doubt = student.isf(gamma, records - 1) / np.sqrt(records - 1)
    with np.errstate(invalid="ignore", over="ignore"):
        # Subtracting 1 leaves the deviation unchanged, and log1p adds it back to the mean.
        excess = np.expm1(exponents - shift[..., None, :])
        total = shift + np.log1p(excess.mean(axis=-2) + doubt * excess.std(axis=-2))
    return np.where(np.isfinite(top), total, np.inf) / steps


def step_costs(
    orders: npt.ArrayLike,
    distances: npt.ArrayLike,
    sigma: npt.ArrayLike,
    steps: int,
    sampling_rate: float = 1.0,
    neighbouring: Neighbouring = Neighbouring.ADD_REMOVE,
    gamma: float = GAMMA,
) -> Floats:
    """Return step costs, [..., O], for n distances each, as `log_moments`, in bounded memory."""
    chosen, each = _orders(orders), np.asarray(distances, dtype=np.float64)
    leading, records = each.shape[:-1], each.shape[-1]
    rows = each.reshape(-1, records)
    noise = np.broadcast_to(np.asarray(sigma, dtype=np.float64), leading).reshape(-1, 1)
    costs = np.empty((len(rows), len(chosen)))
    size = max(1, BLOCK // max(1, records * len(chosen)))
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        moments = log_moments(chosen, rows[part], noise[part], sampling_rate, neighbouring)
        costs[part] = estimate(moments, steps, gamma)
    return costs.reshape(*leading, len(chosen))


def epsilons(
    costs: npt.ArrayLike, orders: npt.ArrayLike, delta: float, gamma_total: float = 0.0
) -> tuple[Floats, Ints]:
    """Return epsilon >= 0 at delta for each of many costs, and its order, both [...].

    min over lambda of (cost - ln(delta - gamma_total))/lambda, a minimum that is not charged.

    costs: [..., O], of all steps together.
    gamma_total: the probability that any step's estimator fails.
    Source: Theorem 2 and Eq. 16; 0 <= gamma_total < delta < 1.
    """
    chosen = _orders(orders)
    # The estimators may fail with probability gamma_total, so only the rest of delta is left for
    # the tail.
    each = (np.asarray(costs, dtype=np.float64) - np.log(delta - gamma_total)) / chosen
    best = each.argmin(axis=-1)
    smallest = np.take_along_axis(each, best[..., None], axis=-1)[..., 0]
    return np.maximum(smallest, 0.0), chosen[best]


def delta_at_percentile(delta: float, percentile: float) -> float:
    """Return the Bayesian delta that implies `delta` for a share of the distribution.

    delta_mu = delta (1 - percentile): by Markov's inequality, Pr[L > epsilon | x'] exceeds delta
    for at most the share delta_mu/delta of the distribution. Source: Section 4.4.1.
    """
    return delta * (1 - percentile)


def _orders(orders: npt.ArrayLike) -> Ints:
    chosen = np.asarray(orders)
    return chosen.astype(np.int64)


def _log_expm1(x: Floats) -> Floats:
    """Return log(e^x - 1) for x >= 0, exact at both ends; -inf at 0."""
    return x + np.log(-np.expm1(-x))


def _sampled(ratios: Floats, orders: Ints, rate: float) -> Floats:
    """Return log E exp(K(K-1) ratio), K ~ Binomial(lambda + 1, q), [n, O]; nothing cancels."""
    # K = 0 and K = 1 add exp(0) = 1, so only larger counts add to the excess over 1.
    k = np.arange(2, orders.max() + 2)
    moments = np.empty((len(ratios), len(orders)))
    # The logarithms of the binomial probabilities of K, for each order.
    weights = []
    for order in orders:
        n, some = order + 1, k[:order]
        choices = gammaln(n + 1) - gammaln(some + 1) - gammaln(n - some + 1)
        weights.append(choices + some * np.log(rate) + (n - some) * np.log1p(-rate))
    size = max(1, BLOCK // len(k))
    for start in range(0, len(ratios), size):
        part = slice(start, start + size)
        powers = _log_expm1(ratios[part] * (k * (k - 1.0)))
        for column, weight in enumerate(weights):
            # log of Pr[K = k] (e^(k (k - 1) ratio) - 1), added up relative to the largest term.
            terms = powers[:, : len(weight)] + weight
            top = terms.max(axis=1)
            shift = np.where(np.isfinite(top), top, 0.0)
            total = shift + np.log(np.exp(terms - shift[:, None]).sum(axis=1))
            # log(1 + excess): the 1 is the moment of a record that leaks nothing.
            moments[part, column] = np.logaddexp(0.0, total)
    return moments
