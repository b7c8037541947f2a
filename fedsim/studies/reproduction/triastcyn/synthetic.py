"""Weibull gradients, their distances, and epsilon by both accountants at the source's settings."""

import numpy as np

from fedsim.privacy import bayesian
from fedsim.privacy.bayesian import Ints
from fedsim.report.figures.canvas import Floats

RECORDS, DIMENSIONS, SHAPE = 50, 1000, 0.5
"""Of the gradients of one step, and the Weibull distribution of their entries."""

RATE, DELTA = 1e-3, 1e-5
"""q and delta of Figures 1, 3 and 4."""

ORDERS: Ints = np.array([*range(1, 33), 36, 40, 48, 56, 64, 80, 96])
"""That are searched; the authors fixed one."""


def gradients(draw: np.random.Generator, steps: int) -> Floats:
    """Return the gradients of some steps, [steps, RECORDS, DIMENSIONS]."""
    return draw.weibull(SHAPE, (steps, RECORDS, DIMENSIONS))


def norms(vectors: Floats) -> Floats:
    """Return the norms [..., n] of vectors [..., n, d]."""
    return np.asarray(np.linalg.norm(vectors, axis=-1))


def clipped(vectors: Floats, bounds: Floats) -> Floats:
    """Return vectors shortened to at most a bound.

    Args:
        vectors: [..., n, d].
        bounds: [...].
    """
    factors = np.minimum(1.0, bounds[..., None] / norms(vectors))
    return np.asarray(vectors * factors[..., None])


def pair_distances(vectors: Floats) -> Floats:
    """Return |g - g'| of all pairs, [..., n (n - 1)/2].

    Args:
        vectors: [..., n, d].
    """
    products = vectors @ np.swapaxes(vectors, -1, -2)
    squares = np.diagonal(products, axis1=-2, axis2=-1)
    first, second = np.triu_indices(vectors.shape[-2], k=1)
    found = squares[..., first] + squares[..., second] - 2 * products[..., first, second]
    return np.sqrt(np.maximum(found, 0.0))


def moments_epsilon(multiplier: float, steps: int, orders: Ints = ORDERS) -> float:
    """Return the moments accountant's epsilon at DELTA, of steps alike.

    Args:
        multiplier: noise over sensitivity.
    """
    moments = bayesian.log_moments(orders, 1.0, multiplier, RATE)
    return float(bayesian.epsilons(steps * moments, orders, DELTA)[0])


def epsilons_so_far(costs: Floats, orders: Ints = ORDERS) -> Floats:
    """Return the Bayesian epsilon at DELTA after each step, [steps].

    Args:
        costs: [steps, O] of each, under the Hoelder exponent of all.
        orders: [O].
    """
    spent = bayesian.GAMMA * len(costs)
    return bayesian.epsilons(costs.cumsum(axis=0), orders, DELTA, spent)[0]
