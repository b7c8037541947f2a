"""PAC privacy of a black box: any function from data to a vector, learned from simulated data.

Xiao and Devadas, "PAC privacy: automatic privacy measurement and control of data processing", 2023.
The secret X is drawn from a stated distribution, y = M(X) is projected and gets Gaussian noise, and
MI(X; y + B) <= 1/2 E (y - a)^T Sigma_B^-1 (y - a) for any fixed centre a. Two steps make the noise:

I.  `learn`: simulated results say in which directions, and how far, a result moves.
II. `confident`: fresh ones bound that expectation with a stated confidence, and scale the noise.

The source adds a number to estimated eigenvalues and asks for gaps between them, by constants that
it does not give. Here one scalar is bounded instead, by results that the directions were not
learned from: no constant is unknown, and no dimension enters. What is not along a learned direction
is not released, and what lies outside of an ellipsoid is drawn back to it, so that the bound needs
no law of the results.

A mechanism may be random: its coins then count as part of the secret. The budget is an average over
the stated distribution, and no differential privacy.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.privacy.pac import Floats, anisotropic_variances

Data = TypeVar("Data")

Mechanism = Callable[[Data, np.random.Generator], npt.ArrayLike]
"""From data, and coins that it may use, to a vector or an array of numbers."""

Draw = Callable[[np.random.Generator], Data]
"""Draws data from the stated distribution of the secret."""

LEAST = 16
"""Simulated results, below which nothing is learned."""

ROUNDING = 1e-12
"""A direction in which results move by less than this share of their size is rounding."""

LEARNED = 0.5
"""The share of simulations of which Algorithm I learns; the rest confirms."""


@dataclass(frozen=True)
class Noise:
    """Where a result is released, and how much noise hides it.

    Attributes:
        centre: [d], the mean of the results that were learned from.
        directions: [r, d], orthonormal; the rest of the space is not released.
        variances: [r], of the noise along them.
        limit: the most that sum_j z_j^2/variance_j of a result's coordinates z may be; one that has
            more is drawn back.
        budget: in nats.
        confidence: that no more is told; None as long as nothing but an estimate says so.
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
        """Return where results lie along the directions, [..., r], before they are drawn back.

        results: [..., d].
        """
        return (results - self.centre) @ self.directions.T

    def told(self, coordinates: Floats) -> Floats:
        """Return sum_j z_j^2/variance_j of coordinates [..., r], drawn back to the limit.

        Half of its mean over the secret is what the release tells in nats, at most.
        """
        found: Floats = (coordinates**2 / self.variances).sum(-1)
        return np.minimum(found, self.limit)


def simulate(
    mechanism: Mechanism[Data], draw: Draw[Data], seeds: Iterator[np.random.Generator]
) -> Floats:
    """Return what a mechanism makes of data that were drawn for it, [m, d].

    seeds: a generator for each of the m results, which does not depend on the others.
    Raises InputError if it does not give vectors of one length, or numbers that are not finite.
    """
    results = [check(mechanism(draw(coins), coins)) for coins in seeds]
    if len(lengths := sorted({len(each) for each in results})) > 1:
        raise InputError(
            f"the mechanism gives from {lengths[0]} to {lengths[-1]} numbers, by the data; let it "
            "return an array of one shape for all data"
        )
    return np.stack(results)


def check(result: npt.ArrayLike) -> Floats:
    """Return a mechanism's result as a vector.

    result: an array of any shape.
    Raises InputError if it is no array of finite numbers.
    """
    try:
        found = np.asarray(result, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        raise InputError(
            "the mechanism's result is no array of numbers; let it return one of the same shape "
            "for all data"
        ) from None
    if not found.size or not np.isfinite(found).all():
        raise InputError("the mechanism's result is empty or has numbers that are not finite")
    return found


def learn(results: Floats, budget: float) -> Noise:
    """Return the directions of simulated results, and noise as if their spread were known.

    Half of the results give the directions; how far results move along them, and how far one is
    let, is taken from the other half, which the directions were not fitted to.

    results: [m, d], m >= 16.
    budget: in nats, > 0.
    Raises InputError for too few results, or results that are all the same, which need no noise.
    Source: Algorithm I of the slides (learning from your data and the processing).
    """
    if len(results) < LEAST:
        raise InputError(f"{len(results)} simulated results are too few; give at least {LEAST}")
    half = len(results) // 2
    centre = results[:half].mean(0)
    _, lengths, axes = np.linalg.svd(results[:half] - centre, full_matrices=False)
    directions = axes[lengths > ROUNDING * max(lengths[0], np.abs(centre).max())]
    if not len(directions):
        raise InputError(
            "every simulated result is the same: the mechanism tells nothing of the data, and "
            "needs no noise"
        )
    coordinates = (results[half:] - centre) @ directions.T
    # About the centre that the noise has: what is not known of the mean is paid for too.
    spread = (coordinates**2).mean(0)
    kept = spread > 0
    variances = anisotropic_variances(spread[kept], budget)
    limit = float((coordinates[:, kept] ** 2 / variances).sum(-1).max())
    return Noise(centre, directions[kept], variances, limit, budget)


def confident(noise: Noise, results: Floats, confidence: float) -> Noise:
    """Return noise that keeps its budget with a stated confidence over the simulations.

    results: [n, d], of simulations that it was not learned from, n >= 2.
    confidence: in (0, 1).
    Raises InputError for fewer than two results, or a confidence out of range.
    Source: Algorithm II of the slides (confident release), by Maurer and Pontil, "Empirical
    Bernstein bounds", 2009, Theorem 4, for the one number that the bound needs.
    """
    if len(results) < 2:
        raise InputError("fewer than two simulated results are left to confirm the noise")
    if not 0 < confidence < 1:
        raise InputError(f"the confidence is {confidence}; give a probability between 0 and 1")
    told = noise.told(noise.coordinates(results))
    count, log_term = len(told), math.log(2 / (1 - confidence))
    mean = float(told.mean()) + math.sqrt(2 * float(told.var(ddof=1)) * log_term / count)
    mean += 7 * noise.limit * log_term / (3 * (count - 1))
    # 1/2 E[told] is inversely proportional to the noise's variance, the limit along with it.
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
) -> tuple[Noise, Floats]:
    """Return noise for a black box, and the simulated results that it was made from, [m, d].

    draw: of the stated distribution of the secret.
    """
    results = simulate(mechanism, draw, seeds)
    learned = round(LEARNED * len(results))
    noise = confident(learn(results[:learned], budget), results[learned:], confidence)
    return noise, results


def release(noise: Noise, result: npt.ArrayLike, coins: np.random.Generator) -> Floats:
    """Return a result that may be seen, [d].

    result: what the mechanism made of the secret data.
    coins: of the noise, from the operating system's entropy where the release is real.
    Raises InputError if the result has another length than those that were learned from.
    """
    found = check(result)
    if found.shape != noise.centre.shape:
        raise InputError(
            f"the mechanism gave {found.size} numbers, and {noise.centre.size} in simulation; let "
            "it return as many for all data"
        )
    along = noise.coordinates(found)
    told = float((along**2 / noise.variances).sum())
    if told > noise.limit:
        along = along * math.sqrt(noise.limit / told)
    along = along + np.sqrt(noise.variances) * coins.standard_normal(len(along))
    return np.asarray(noise.centre + along @ noise.directions)


def generators(seed: int, count: int) -> Iterator[np.random.Generator]:
    """Yield independent generators, the i-th a function of the seed and i alone.

    seed: at least 0.
    """
    for number in range(count):
        yield np.random.default_rng([seed, number])
