"""What a search for a setting costs in privacy, where its trainings are of the private data.

Whoever trains with K settings and sees what became of each has released K trainings, which compose.
Whoever draws at random how often to train, draws a setting each time, and lets nobody see anything
but the best result pays less: Papernot and Steinke, "Hyperparameter tuning with Rényi differential
privacy", 2022, bound its Rényi divergence by that of one training.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy
from scipy.special import logsumexp

from adversaries.errors import InputError
from fedsim.privacy.accounting import PLD, RENYI
from fedsim.privacy.mechanism import Mechanism

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SearchCost:
    """What a search over settings costs, beside one training; every epsilon is at one delta.

    Attributes:
        settings: K, how many there are.
        delta: of every epsilon.
        all_trainings: of one training with each setting, all of which are seen.
        poisson: where the number of trainings is Poisson's with mean K and only the best result is
            seen, of settings that are drawn evenly; None where that cannot be stated.
        logarithmic: the same, where the number is of the logarithmic distribution, never 0.
        note: why there is none, "" where there is.
    """

    settings: int
    delta: float
    all_trainings: float
    poisson: float | None
    logarithmic: float | None
    note: str


def search_cost(mechanisms: Sequence[Mechanism], delta: float) -> SearchCost:
    """Return what it costs to search among these trainings.

    delta: in (0, 1).
    Raises InputError if there are none.
    """
    if not mechanisms:
        raise InputError("a search among no settings costs nothing; give at least one")
    together = Mechanism(
        tuple(group for each in mechanisms for group in each.groups), mechanisms[0].neighbouring
    )
    count, composed = len(mechanisms), PLD.epsilon(together, delta)
    refused = "there is one setting only" if count == 1 else ""
    refused = refused or next(filter(None, map(RENYI.supports, mechanisms)), "")
    if refused:
        return SearchCost(count, delta, composed, None, None, refused)
    orders = RENYI.orders
    one = mixture(orders, np.array([RENYI.curve(each) for each in mechanisms]))
    limits = np.log1p(1 / (orders - 1))
    deltas = np.array([[PLD.delta(each, limit) for limit in limits] for each in mechanisms])
    curves = (
        repeated_poisson(orders, one, deltas.mean(axis=0), count),
        repeated_truncated(orders, one, count, shape=0.0),
    )
    poisson, logarithmic = (RENYI.converted(curve, delta) for curve in curves)
    return SearchCost(count, delta, composed, poisson, logarithmic, "")


def mixture(orders: Array, divergences: Array) -> Array:
    """Return the Rényi divergence of one training with a setting that is drawn evenly and told.

    exp((order - 1) divergence) is an expectation, and so the mean of those of the settings.

    orders: [n], above 1.
    divergences: [K, n] of each setting, in nats.
    Returns: [n], at most the largest of them.
    """
    exponents = (orders - 1) * divergences
    mean = logsumexp(exponents, axis=0) - math.log(len(divergences))
    return np.asarray(mean / (orders - 1), dtype=np.float64)


def repeated_truncated(orders: Array, divergences: Array, mean: float, shape: float) -> Array:
    """Bound the Rényi divergence of the best of K results, K of the truncated negative binomial.

    For every order λ and any order λ̂ it is, with the distribution's parameters η (shape) and γ,

        ε(λ) + (1 + η)(1 - 1/λ̂) ε(λ̂) + (1 + η) log(1/γ)/λ̂ + log(mean)/(λ - 1).

    orders: [n], above 1, rising.
    divergences: [n] of one result, in nats.
    mean: of K, above 1.
    shape: η, above -1; 0 is the logarithmic distribution, 1 the geometric one.
    Returns: [n], of what is seen: the best result alone.
    Raises InputError for a mean of 1 or less.
    Source: Papernot and Steinke, 2022, Theorem 2.
    """
    gamma = gamma_of_mean(mean, shape)
    others = (1 + shape) * np.min((1 - 1 / orders) * divergences - math.log(gamma) / orders)
    return _rising(divergences + others + math.log(mean) / (orders - 1))


def repeated_poisson(orders: Array, divergences: Array, deltas: Array, mean: float) -> Array:
    """Bound the Rényi divergence of the best of K results, K of Poisson's distribution.

    With probability exp(-mean) there is no result at all. For every order λ it is

        ε(λ) + mean · δ̂ + log(mean)/(λ - 1), δ̂ the delta of one result at ε̂ = log(1 + 1/(λ - 1)).

    orders: [n], above 1, rising.
    divergences: [n] of one result, in nats.
    deltas: [n], δ̂ at each order.
    mean: of K, at least 1.
    Returns: [n], of what is seen: the best result alone, or that there is none.
    Source: Papernot and Steinke, 2022, Theorem 6.
    """
    return _rising(divergences + mean * deltas + math.log(mean) / (orders - 1))


def gamma_of_mean(mean: float, shape: float) -> float:
    """Return γ of the truncated negative binomial distribution that has a mean.

    mean: above 1.
    shape: η, above -1.
    Raises InputError for a mean of 1 or less.
    Source: Papernot and Steinke, 2022, Definition 1.
    """
    if not mean > 1:
        raise InputError(f"the mean number of trainings is {mean}; give more than 1")

    def excess(log_gamma: float) -> float:
        gamma = math.exp(log_gamma)
        if shape == 0:
            found = (1 / gamma - 1) / -log_gamma
        else:
            found = shape * (1 - gamma) / (gamma * -math.expm1(shape * log_gamma))
        return math.log(found) - math.log(mean)

    return math.exp(scipy.optimize.brentq(excess, -600.0, -1e-9, xtol=1e-13))


def _rising(divergences: Array) -> Array:
    """Return the least bound at each order that holds: a divergence rises with its order."""
    return np.minimum.accumulate(divergences[::-1])[::-1]
