"""Closed forms of mu-Gaussian differential privacy.

Gaussian steps with sensitivities Delta_i and noises sigma_i compose to one mechanism with

    mu = sqrt(sum_i (Delta_i / sigma_i)^2).

Its privacy loss is exactly N(mu^2/2, mu^2) when the data were D (Dong, Roth and Su, "Gaussian
differential privacy", 2019, Corollaries 1 and 3.3). mu = inf is no noise.
"""

import math

import numpy as np
import numpy.typing as npt
import scipy

from adversaries.arrays import Floats
from adversaries.errors import InputError
from adversaries.statistics.roots import find_root

ROOT2 = math.sqrt(2)


def check_positive_delta(delta: float) -> None:
    """Raise InputError unless 0 < delta < 1."""
    if not 0 < delta < 1:
        raise InputError(f"delta is {delta}; give a probability above 0 and below 1, such as 1e-5")


def delta(mu: float, epsilon: float) -> float:
    """Return the smallest delta at which the mechanism is (epsilon, delta)-private.

    delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu).

    Args:
        mu: >= 0, may be infinite.
        epsilon: >= 0, may be infinite.

    Raises InputError unless mu >= 0 and epsilon >= 0.
    Source: Balle and Wang, "Improving the Gaussian mechanism for differential privacy", 2018,
    Theorem 5.
    """
    _check_mu(mu)
    _check_epsilon(epsilon)
    if mu == 0 or math.isinf(epsilon):
        return 0.0
    if math.isinf(mu):
        return 1.0
    if epsilon == 0:
        return advantage(mu)
    return math.exp(_log_delta(mu, epsilon))


def deltas(mu: float, epsilons: Floats) -> Floats:
    """Return `delta` at every epsilon of an array, in its shape.

    Args:
        mu: in (0, inf), not checked.
        epsilons: float64 [...], >= 0.
    """
    return np.exp(_log_delta(mu, epsilons))


def epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon >= 0 at which the mechanism is (epsilon, delta)-private.

    Args:
        mu: >= 0, may be infinite.
        delta: in (0, 1).

    Raises InputError unless mu >= 0 and 0 < delta < 1.
    """
    _check_mu(mu)
    check_positive_delta(delta)
    if math.isinf(mu):
        return math.inf
    target = math.log(delta)

    # Search in standard deviations of the loss from its mean: there the root lies in a short
    # interval for any mu. Chernoff's bound on the tail, which exceeds delta, closes it from above.
    # From below it is epsilon = 0, or the deviation below which delta rounds to 1.
    def excess(deviation: float) -> float:
        return float(_log_delta_at(mu, deviation)) - target

    lowest, highest = max(-mu / 2, -10.0), math.sqrt(-2 * target)
    if excess(lowest) <= 0:
        return 0.0
    deviation = find_root(excess, lowest, highest, xtol=1e-14, rtol=1e-14)
    return max(0.0, mu * (deviation + mu / 2))


def mu_of_epsilon(epsilon: float, delta: float) -> float:
    """Return the mu (the least noise) that is just (epsilon, delta)-private: inverts `delta` in mu.

    Args:
        epsilon: in [0, inf).
        delta: in (0, 1).

    Raises InputError unless 0 <= epsilon < inf and 0 < delta < 1.
    """
    _check_epsilon(epsilon)
    check_positive_delta(delta)
    if math.isinf(epsilon):
        raise InputError("epsilon is infinite, which any noise satisfies; give a finite epsilon")
    if epsilon == 0:
        return mu_of_advantage(delta)
    target = math.log(delta)

    def excess(log_mu: float) -> float:
        return float(_log_delta(math.exp(log_mu), epsilon)) - target

    # A mu that is surely private enough: its advantage is delta, or Chernoff's bound on its tail,
    # which exceeds delta, equals delta. A little less, to allow for rounding.
    reach = math.sqrt(-2 * target)
    low = max(mu_of_advantage(delta), 2 * epsilon / (reach + math.sqrt(reach**2 + 2 * epsilon)))
    low = math.log(low) - 1e-9
    high = low + 1
    while excess(high) < 0:
        high += 1
    return math.exp(find_root(excess, low, high, xtol=1e-14, rtol=1e-14))


def advantage(mu: float) -> float:
    """Return the membership advantage 2 Phi(mu/2) - 1 of the best test at equal priors.

    mu: >= 0, may be infinite.
    Raises InputError unless mu >= 0.
    Source: Bernau et al., "Quantifying identifiability", Eq. 14.
    """
    _check_mu(mu)
    return math.erf(mu / (2 * ROOT2))


def mu_of_advantage(advantage: float) -> float:
    """Return the mu whose best test has this advantage: 2 Phi^-1((1 + advantage) / 2).

    advantage: in [0, 1]; 1 gives infinity.
    Raises InputError unless 0 <= advantage <= 1.
    """
    if not 0 <= advantage <= 1:
        raise InputError(f"the advantage is {advantage}; give a number from 0 to 1")
    return 2 * ROOT2 * float(scipy.special.erfinv(advantage))


def tail(mu: float, epsilon: float) -> float:
    """Return Pr_D[privacy loss > epsilon], which delta' estimates and which exceeds delta.

    Args:
        mu: >= 0, may be infinite.
        epsilon: of any sign, may be infinite.

    Raises InputError unless mu >= 0, or if epsilon is not a number.
    """
    _check_mu(mu)
    if math.isnan(epsilon):
        raise InputError("epsilon is not a number; give a number")
    if mu == 0 or math.isinf(epsilon):
        return float(epsilon < 0)
    if math.isinf(mu):
        return 1.0
    return float(scipy.special.ndtr(mu / 2 - epsilon / mu))


def _log_delta(mu: float, epsilon: npt.ArrayLike) -> Floats:
    return _log_delta_at(mu, np.asarray(epsilon) / mu - mu / 2)


def _log_delta_at(mu: float, deviation: npt.ArrayLike) -> Floats:
    """Return log delta where epsilon lies `deviation` standard deviations above the mean loss.

    With x the deviation and y = x + mu, e^epsilon phi(y) = phi(x). Above the mean, both terms share
    the factor phi(x); below it, delta is written as a sum of small numbers.
    """
    x = np.asarray(deviation, dtype=np.float64)
    above, below = np.maximum(x, 0.0) / ROOT2, np.minimum(x, 0.0) / ROOT2
    step = mu / ROOT2
    if mu < 1e-5:  # the difference of two close values would cancel: use the slope -erfcx'(x)
        x_middle = above + step / 2
        square = np.maximum(x_middle, 1.0) ** 2
        series = (1 - 1.5 / square + 3.75 / square**2) / (math.sqrt(math.pi) * square)
        exact = 2 / math.sqrt(math.pi) - 2 * x_middle * scipy.special.erfcx(x_middle)
        # The exact formula cancels for large x.
        drop = step * np.where(x_middle > 100, series, exact)
    else:
        drop = scipy.special.erfcx(above) - scipy.special.erfcx(above + step)
    epsilon = mu * (ROOT2 * below + mu / 2)
    rise = scipy.special.erf(below + step) - scipy.special.erf(below)
    rise += np.expm1(-epsilon) * np.exp(-(below**2)) * scipy.special.erfcx(below + step)
    # log 0 is a delta too small for float64. Far out, rounding may put drop below 0.
    left = np.maximum(np.where(x > 0, drop, rise), 0.0)
    with np.errstate(divide="ignore", over="ignore"):
        logarithm: Floats = np.log(left / 2) - above**2
    return logarithm


def _check_mu(mu: float) -> None:
    if not mu >= 0:
        raise InputError(f"mu is {mu}; give the ratio of sensitivity to noise, 0 or more")


def _check_epsilon(epsilon: float) -> None:
    if not epsilon >= 0:
        raise InputError(f"epsilon is {epsilon}; give a number of at least 0")
