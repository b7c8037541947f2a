"""PAC privacy of a black box: any function from data to a vector, learned from simulated data.

Xiao and Devadas, "PAC privacy: automatic privacy measurement and control of data processing", 2023.
The secret X is drawn from a stated distribution, y = M(X) is projected and gets Gaussian noise, and
MI(X; y + B) <= 1/2 E (y - a)^T Sigma_B^-1 (y - a) for any fixed centre a. Here `learn` estimates
directions and spread, and `confident` bounds that one scalar by fresh results, so that it needs no
constant and does not depend on the dimension. A result outside an ellipsoid is pulled back onto it.
The budget is an average over the stated distribution and the mechanism's coins, not differential
privacy.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Floats
from adversaries.errors import InputError
from fedsim.privacy.pac import anisotropic_variances

Data = TypeVar("Data")

Mechanism = Callable[[Data, np.random.Generator], npt.ArrayLike]
"""Maps data, and random numbers that it may use, to a vector or an array of numbers."""

Draw = Callable[[np.random.Generator], Data]
"""Draws data from the stated distribution of the secret."""

LEAST = 16
"""Smallest number of simulated results to learn from."""

ROUNDING = 1e-12
"""A direction in which results move by less than this share of their size is rounding error."""

LEARNED = 0.5
"""Share of the simulations that Algorithm I learns from; the rest confirms."""


@dataclass(frozen=True)
class BlackBoxNoise:
    """The noise for a result, and the directions in which it is released.

    Attributes:
        directions: [r, d], orthonormal; the rest of the space is not released.
        variances: [r], variances of the noise along the directions.
        limit: largest sum_j z_j^2/variance_j of coordinates z; a result beyond it is pulled back.
        confidence: that the release keeps the budget; None while only an estimate says so.
    """

    centre: Floats
    directions: Floats
    variances: Floats
    limit: float
    budget: float
    confidence: float | None = None

    @property
    def size(self) -> float:
        """The root of E|B|^2."""
        return math.sqrt(float(self.variances.sum()))

    def coordinates(self, results: Floats) -> Floats:
        """Return the coordinates of results [..., d] along the directions, [..., r]."""
        return (results - self.centre) @ self.directions.T

    def squared_lengths(self, coordinates: Floats) -> Floats:
        """Return sum_j z_j^2/variance_j of coordinates [..., r], cut off at the limit."""
        lengths: Floats = (coordinates**2 / self.variances).sum(-1)
        return np.minimum(lengths, self.limit)


def simulate(
    mechanism: Mechanism[Data], draw: Draw[Data], seeds: Iterator[np.random.Generator]
) -> Floats:
    """Return results [m, d] for each generator's data. Raises InputError for unequal ones."""
    results = [as_vector(mechanism(draw(coins), coins)) for coins in seeds]
    if len(lengths := sorted({len(each) for each in results})) > 1:
        raise InputError(
            f"the mechanism returns {lengths[0]} to {lengths[-1]} numbers, depending on the data; "
            "let it return an array of one shape for all data"
        )
    return np.stack(results)


def as_vector(result: npt.ArrayLike) -> Floats:
    """Return a mechanism's result as a vector.

    Raises InputError unless it has finite numbers only.
    """
    try:
        vector = np.asarray(result, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        raise InputError(
            "the mechanism's result is not an array of numbers; let it return one of the same "
            "shape for all data"
        ) from None
    if not vector.size or not np.isfinite(vector).all():
        raise InputError("the mechanism's result is empty or has numbers that are not finite")
    return vector


def learn(results: Floats, budget: float) -> BlackBoxNoise:
    """Return the directions of simulated results, and noise for the spread that they show.

    One half of the results gives the directions, the other one the spread along them and the limit.
    results: [m, d], m >= 16.
    budget: in nats.
    Raises InputError for too few results, or equal ones. Source: Algorithm I of the slides
    (learning from your data and the processing).
    """
    if len(results) < LEAST:
        raise InputError(f"{len(results)} simulated results are too few; give at least {LEAST}")
    half = len(results) // 2
    # Directions and spread come from different halves: directions fitted to the same results would
    # understate the spread.
    centre = results[:half].mean(0)
    _, lengths, axes = np.linalg.svd(results[:half] - centre, full_matrices=False)
    # Directions whose results move by no more than rounding are not released at all.
    directions = axes[lengths > ROUNDING * max(lengths[0], np.abs(centre).max())]
    if not len(directions):
        raise InputError(
            "every simulated result is the same: the mechanism reveals nothing about the data and "
            "needs no noise"
        )
    coordinates = (results[half:] - centre) @ directions.T
    # The spread about the noise's centre, not about the mean: that also pays for the mean's error.
    spread = (coordinates**2).mean(0)
    # A direction without spread would need no noise, and its variance would be 0.
    kept = spread > 0
    variances = anisotropic_variances(spread[kept], budget)
    limit = float((coordinates[:, kept] ** 2 / variances).sum(-1).max())
    return BlackBoxNoise(centre, directions[kept], variances, limit, budget)


def confident(noise: BlackBoxNoise, results: Floats, confidence: float) -> BlackBoxNoise:
    """Return noise that keeps its budget with a stated confidence over the simulations.

    results: [n, d], n >= 2, of simulations that the noise was not learned from.
    Raises InputError for fewer than two results, or a confidence out of range. Source: Algorithm II
    of the slides (confident release). The bound on the mean is Maurer and Pontil, "Empirical
    Bernstein bounds", 2009, Theorem 4.
    """
    if len(results) < 2:
        raise InputError("fewer than two simulated results are left to confirm the noise")
    if not 0 < confidence < 1:
        raise InputError(f"the confidence is {confidence}; give a probability between 0 and 1")
    lengths = noise.squared_lengths(noise.coordinates(results))
    count, log_term = len(lengths), math.log(2 / (1 - confidence))
    # An upper limit of the true mean (empirical Bernstein): the sample mean, a term for its spread,
    # and a term for the largest possible value.
    mean = float(lengths.mean()) + math.sqrt(2 * float(lengths.var(ddof=1)) * log_term / count)
    mean += 7 * noise.limit * log_term / (3 * (count - 1))
    # The squared lengths and the limit are inversely proportional to the noise's variance.
    factor = min(mean, noise.limit) / (2 * noise.budget)
    return replace(
        noise, variances=noise.variances * factor, limit=noise.limit / factor, confidence=confidence
    )


def privatise(
    mechanism: Mechanism[Data],
    draw: Draw[Data],
    seeds: Iterator[np.random.Generator],
    budget: float,
    confidence: float = 0.95,
) -> tuple[BlackBoxNoise, Floats]:
    """Return noise for a black box, and the simulated results that it was made from, [m, d]."""
    results = simulate(mechanism, draw, seeds)
    learned = round(LEARNED * len(results))
    noise = confident(learn(results[:learned], budget), results[learned:], confidence)
    return noise, results


def release(noise: BlackBoxNoise, result: npt.ArrayLike, coins: np.random.Generator) -> Floats:
    """Return a result with noise, [d], which may be published.

    result: the mechanism's result for the secret data.
    coins: for the noise; seeded from the operating system's entropy where the release is real.
    Raises InputError if the result is longer or shorter than the simulated ones.
    """
    vector = as_vector(result)
    if vector.shape != noise.centre.shape:
        raise InputError(
            f"the mechanism returned {vector.size} numbers, but {noise.centre.size} in simulation; "
            "let it return an array of one shape for all data"
        )
    along = noise.coordinates(vector)
    length = float((along**2 / noise.variances).sum())
    if length > noise.limit:
        # Pull the result back to the ellipsoid, because the confidence assumes that no squared
        # length exceeds the limit.
        along = along * math.sqrt(noise.limit / length)
    along = along + np.sqrt(noise.variances) * coins.standard_normal(len(along))
    return np.asarray(noise.centre + along @ noise.directions)


def generators(seed: int, count: int) -> Iterator[np.random.Generator]:
    """Yield independent generators, each a function of the seed and its position only."""
    for number in range(count):
        yield np.random.default_rng([seed, number])
