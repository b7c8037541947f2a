"""Games of membership with a known epsilon: scores, and which of them are members'."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adversaries.statistics import gaussian
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MU, SCALE, TRUTHFUL, NOISE, RATE = 1.5, 1.0, 1.0, 0.5, 0.25
"""Gaussian's mean, Laplace's and randomized response's epsilon, noise and rate of the mixture."""


@dataclass(frozen=True)
class KnownGame:
    """A game whose epsilon is known.

    Attributes:
        epsilon: of the game at a delta in [0, 1): no valid bound is above it.
        scores: of trials, float64 [n], given which are members', bool [n]. With a signal they are
            exact log-likelihood ratios.
    """

    name: str
    epsilon: Callable[[float], float]
    scores: Callable[[np.random.Generator, Bools], Floats]


def _no_epsilon(delta: float) -> float:
    return 0.0


def _gaussian(generator: np.random.Generator, members: Bools) -> Floats:
    return MU * (generator.standard_normal(len(members)) + MU * members) - MU**2 / 2


def _laplace(generator: np.random.Generator, members: Bools) -> Floats:
    outputs = members + generator.laplace(scale=1 / SCALE, size=len(members))
    return SCALE * (np.abs(outputs) - np.abs(outputs - 1))


def _laplace_epsilon(delta: float) -> float:
    """Return the root of delta(epsilon) = 1 - e^((epsilon - scale)/2)."""
    return max(0.0, SCALE + 2 * math.log1p(-delta))


def _randomized_response(generator: np.random.Generator, members: Bools) -> Floats:
    truthful = generator.random(len(members)) < 1 / (1 + math.exp(-TRUTHFUL))
    return np.where(members == truthful, TRUTHFUL, -TRUTHFUL)


def _response_epsilon(delta: float) -> float:
    """Return the root of delta(epsilon) = (e^truthful - e^epsilon)/(1 + e^truthful)."""
    left = math.exp(TRUTHFUL) - delta * (1 + math.exp(TRUTHFUL))
    return max(0.0, math.log(left)) if left > 0 else 0.0


def _mixture(generator: np.random.Generator, members: Bools) -> Floats:
    sampled = members & (generator.random(len(members)) < RATE)
    outputs = sampled + NOISE * generator.standard_normal(len(members))
    return np.log1p(RATE * np.expm1((outputs - 0.5) / NOISE**2))


def _mixture_epsilon(delta: float) -> float:
    return PLD.epsilon(Mechanism.alike(NOISE, 1, RATE), delta) if delta else math.inf


GAMES = (
    KnownGame("no signal: normal", _no_epsilon, lambda rng, who: rng.standard_normal(len(who))),
    KnownGame(
        "no signal: three values, many ties",
        _no_epsilon,
        lambda rng, who: rng.integers(0, 3, len(who)).astype(np.float64),
    ),
    KnownGame("no signal: heavy tail", _no_epsilon, lambda rng, who: rng.standard_cauchy(len(who))),
    KnownGame(
        "Gaussian", lambda delta: gaussian.epsilon(MU, delta) if delta else math.inf, _gaussian
    ),
    KnownGame("Laplace", _laplace_epsilon, _laplace),
    KnownGame("randomized response", _response_epsilon, _randomized_response),
    KnownGame("sampled Gaussian, a mixture", _mixture_epsilon, _mixture),
)
"""Games without a signal, whose epsilon is 0, and games with one."""
