"""The privacy cost of a search for settings whose trainings use the private data.

A search that shows every result has released K trainings. It costs less if it draws their number
and settings at random and shows only the best (Papernot and Steinke, "Hyperparameter tuning with
Rényi differential privacy", 2022).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from adversaries.arrays import Floats
from adversaries.errors import InputError
from adversaries.statistics.roots import find_root
from fedsim.privacy.accounting import PLD, RENYI
from fedsim.privacy.mechanism import Mechanism


@dataclass(frozen=True)
class SearchCost:
    """The cost of a search over settings; every epsilon is at one delta.

    Attributes:
        all_trainings: epsilon where one training with each setting is shown.
        poisson: epsilon where the number of trainings is Poisson with mean K and the best result is
            shown; None where it cannot be stated.
        logarithmic: the same for a number from the logarithmic distribution, which is never 0.
    """

    settings: int
    delta: float
    all_trainings: float
    poisson: float | None
    logarithmic: float | None
    note: str


def search_cost(mechanisms: Sequence[Mechanism], delta: float) -> SearchCost:
    """Return the cost of a search among these trainings, delta in (0, 1).

    Raises InputError if there are none.
    """
    if not mechanisms:
        raise InputError("there is no setting to search among; give at least one")
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
    # The epsilon at which Theorem 6 takes the delta of one result, for each order.
    limits = np.log1p(1 / (orders - 1))
    deltas = np.array([[PLD.delta(each, limit) for limit in limits] for each in mechanisms])
    curves = (
        repeated_poisson(orders, one, deltas.mean(axis=0), count),
        repeated_truncated(orders, one, count, shape=0.0),
    )
    poisson, logarithmic = (RENYI.converted(curve, delta) for curve in curves)
    return SearchCost(count, delta, composed, poisson, logarithmic, "")


def mixture(orders: Floats, divergences: Floats) -> Floats:
    """Return the Rényi divergence [n] of a training with an evenly drawn, shown setting."""
    # The divergence of a mixture with a shown index: the mean of e^((order - 1) divergence), back
    # in logs.
    exponents = (orders - 1) * divergences
    mean = logsumexp(exponents, axis=0) - math.log(len(divergences))
    return np.asarray(mean / (orders - 1), dtype=np.float64)


def repeated_truncated(orders: Floats, divergences: Floats, mean: float, shape: float) -> Floats:
    """Bound the Rényi divergence of the best of K results, K of the truncated negative binomial.

    For every order λ and any order λ̂ the bound, with the distribution's parameters η (shape) and
    γ, is

        ε(λ) + (1 + η)(1 - 1/λ̂) ε(λ̂) + (1 + η) log(1/γ)/λ̂ + log(mean)/(λ - 1).

    orders: [n], above 1, rising.
    divergences: [n] of one result, in nats.
    mean: expected K.
    shape: η, above -1; 0 is the logarithmic distribution, 1 the geometric one.
    Raises InputError for a mean of 1 or less. Source: Papernot and Steinke, 2022, Theorem 2.
    """
    gamma = gamma_of_mean(mean, shape)
    # The second order may be chosen freely, so the best one counts for every first order.
    others = (1 + shape) * np.min((1 - 1 / orders) * divergences - math.log(gamma) / orders)
    return _rising(divergences + others + math.log(mean) / (orders - 1))


def repeated_poisson(orders: Floats, divergences: Floats, deltas: Floats, mean: float) -> Floats:
    """Bound the Rényi divergence of the best of K results, K of Poisson's distribution.

    There may be no result at all. For every order λ the bound is

        ε(λ) + mean · δ̂ + log(mean)/(λ - 1), δ̂ the delta of one result at ε̂ = log(1 + 1/(λ - 1)).

    orders: [n], above 1, rising.
    divergences: [n] of one result, in nats.
    deltas: [n], δ̂ at each order.
    mean: expected K, at least 1. Source: Papernot and Steinke, 2022, Theorem 6.
    """
    return _rising(divergences + mean * deltas + math.log(mean) / (orders - 1))


def gamma_of_mean(mean: float, shape: float) -> float:
    """Return γ of the truncated negative binomial distribution with this mean.

    mean: above 1; else InputError.
    shape: η, above -1. Source: Papernot and Steinke, Definition 1.
    """
    if not mean > 1:
        raise InputError(f"the mean number of trainings is {mean}; give more than 1")

    def excess(log_gamma: float) -> float:
        gamma = math.exp(log_gamma)
        if shape == 0:
            mean_at = (1 / gamma - 1) / -log_gamma
        else:
            mean_at = shape * (1 - gamma) / (gamma * -math.expm1(shape * log_gamma))
        return math.log(mean_at) - math.log(mean)

    # The mean falls from infinity to 1 as gamma rises from 0 to 1. The search is over its
    # logarithm, since gamma may be tiny.
    return math.exp(find_root(excess, -600.0, -1e-9, xtol=1e-13))


def _rising(divergences: Floats) -> Floats:
    """Return the least valid bound at each order: a divergence never exceeds a higher order's."""
    return np.minimum.accumulate(divergences[::-1])[::-1]
