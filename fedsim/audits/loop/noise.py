"""How much noise a loop's steps really had, measured against what they were configured to have.

The watched noise is what the optimizer made of the clipped sum, less that sum, so that no gradient
is left in it. Of right steps its numbers are independent normal ones with the configured standard
deviation: in units of that variance, the squared length over n numbers is chi-square with n degrees
of freedom, and steps and runs add up. Every interval takes it that the noise is that, times one
scale in all steps: `shape_p_value` tests this.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import gammaln
from scipy.stats import chi2

from adversaries.statistics.intervals import Interval
from fedsim.audits.loop.measurement import StepSeen

ENOUGH, OF_TENSOR = 5000, 1000
"""Watched numbers of noise, of the model and of each of its tensors, below which an audit watches
more runs.

So many show with 95 % that the noise is .98 of the configured at least, and that of a tensor .96.
"""

POWER = 0.8
"""The chance of an answer for which further runs are planned."""

SEEN = 0.95
"""The chance with which an audit sees the least deviation that it states."""

TOLERANCE = 1e-3
"""A shortfall of noise that is nobody's mistake: float32 and generators round."""


@dataclass(frozen=True)
class NoiseSums:
    """What is left of watched noise: sums over steps.

    Attributes:
        sizes: how many numbers each tensor of the model has, () before the first step.
        energies: squared lengths of the tensors' noise, in units of the configured variance.
        logs: the sum of the logarithms of the steps' squared lengths.
    """

    steps: int = 0
    sizes: tuple[int, ...] = ()
    energies: tuple[float, ...] = ()
    logs: float = 0.0

    @property
    def freedom(self) -> int:
        """How many numbers were watched."""
        return self.steps * sum(self.sizes)

    @property
    def enough(self) -> bool:
        """Whether no more runs need to be watched; also where there is nothing to watch."""
        smallest = min((size for size in self.sizes if size), default=0) * self.steps
        return not self.freedom or (self.freedom >= ENOUGH and smallest >= OF_TENSOR)

    def __add__(self, other: "NoiseSums") -> "NoiseSums":
        if not self.steps or not other.steps:
            return self if self.steps else other
        if self.sizes != other.sizes:  # models of several sizes: their noise is no one's
            return NoiseSums()
        energies = tuple(a + b for a, b in zip(self.energies, other.energies, strict=True))
        return NoiseSums(self.steps + other.steps, self.sizes, energies, self.logs + other.logs)


NOTHING = NoiseSums()


def summed(steps: Iterable[StepSeen]) -> NoiseSums:
    """Return the sums over steps, nothing if a step is configured to have no noise.

    Args:
        steps: of one run, or of several that draw their noise independently.
    """
    found = []
    for step in steps:
        std = step.noise_multiplier * step.noise_norm
        if std <= 0:
            return NoiseSums()
        energies = tuple(each / std**2 for each in step.noise_energies)
        found.append(NoiseSums(1, step.sizes, energies, math.log(max(sum(energies), 1e-300))))
    return reduce(NoiseSums.__add__, found, NoiseSums())


def total(parts: Iterable[NoiseSums]) -> NoiseSums:
    return reduce(NoiseSums.__add__, parts, NoiseSums())


def at_least(energy: float, freedom: float, tail: float) -> float:
    """Return the lower limit of realised over configured noise, wrong with probability `tail`.

    Args:
        energy: squared length of the noise, in units of the configured variance.
        tail: in (0, 1).
    """
    return math.sqrt(energy / chi2.isf(tail, freedom))


def interval(energy: float, freedom: float, tail: float) -> Interval:
    """Return the interval of realised over configured noise, wrong with `tail` at either end.

    Args:
        tail: in (0, .5).
    """
    high = math.sqrt(energy / chi2.ppf(tail, freedom))
    return Interval(at_least(energy, freedom, tail), high, 1 - 2 * tail)


def least_seen(freedom: float, tail: float) -> float:
    """Return the share of the configured noise below which an audit accuses with 95 %.

    Args:
        tail: of the test that accuses, 1e-4 at most.
    """
    share = math.sqrt(chi2.ppf(tail, freedom) / chi2.ppf(SEEN, freedom))
    return min(share, 1.0) * (1 - TOLERANCE)


def freedom_for(share: float, tail: float, miss: float) -> float:
    """Return how many numbers of right noise show that it is at least a share of the configured.

    Args:
        share: to be shown, in (0, 1).
        miss: the chance that they do not show it.

    Returns:
        The number; inf where none would do.
    """
    if share >= 1:
        return math.inf

    def enough(freedom: float) -> bool:
        return bool(chi2.ppf(miss, freedom) >= share**2 * chi2.isf(tail, freedom))

    low, high = 1.0, 2.0
    while not enough(high):
        low, high = high, 2 * high
        if high > 1e13:
            return math.inf
    while high - low > max(1.0, 1e-3 * low):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def shape_p_value(noise: NoiseSums) -> float:
    """Return at most how probable lengths as uneven, or as even, are of Gaussian noise.

    The statistic is the likelihood ratio of one scale for all steps against one for each; the scale
    itself cancels. Steps of several scales, and numbers that depend on each other, make lengths
    more uneven, numbers of constant size more even. Its moments are those of a Dirichlet
    distribution, and Chernoff's bound with them holds for any number of steps.

    Args:
        noise: of at least two steps.
    """
    half, steps = sum(noise.sizes) / 2, noise.steps
    if steps < 2 or not half:
        return 1.0
    whole = half * steps
    ratio = half * noise.logs - whole * math.log(sum(noise.energies) or 1e-300)

    def bound(power: float) -> float:
        each = gammaln(half * (1 + power)) - gammaln(half)
        return float(steps * each + gammaln(whole) - gammaln(whole * (1 + power)) - power * ratio)

    found = [
        minimize_scalar(bound, bounds=ends, method="bounded", options={"xatol": 1e-6}).fun
        for ends in ((-1 + 1e-6, 0.0), (0.0, 20.0))
    ]
    return float(min(1.0, 2 * np.exp(min(0.0, *found))))


def worst(noise: NoiseSums, tail: float) -> float:
    """Return the lower limit of the tensor with least noise, for all tensors together."""
    return min(at_least(*each, tail / len(noise.sizes)) for each in of_tensors(noise))


def of_tensors(noise: NoiseSums) -> Sequence[tuple[float, int]]:
    """Return the energy and the number of numbers of each tensor, over all steps."""
    return [
        (energy, size * noise.steps)
        for energy, size in zip(noise.energies, noise.sizes, strict=True)
        if size
    ]
