"""The noise of steps and rounds over the noise that was configured: its size, shape and repetition.

Noise of a Gaussian mechanism is independent and normal, of one size in every number. Audited loops,
the clients of an app, recorded loops and recorded servers are measured by the same sums of squares.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, reduce

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import gammaln
from scipy.stats import chi2, norm

from adversaries.arrays import Floats
from adversaries.attacks import noisy_means
from adversaries.attacks.noisy_means import Release, std_interval
from adversaries.statistics.intervals import ALARM_CONFIDENCE, Interval
from fedsim.audits.steps.watch import OWN_CODE, Step

ALPHA = 1 - ALARM_CONFIDENCE

LEAST_OVERLAP, LONGEST_NOISE = 1000, 2**20
"""Products of noise at one distance that a test of repetition needs, and numbers that it takes."""

LEAST_SHARE = 0.97
"""Share of the configured noise that must have been measured in a supported loop."""

UNLUCKY = 0.001
"""Probability that correct noise of the planned number of runs does not show that share."""

TOLERANCE = 1e-3
"""Relative shortfall of noise that is due to rounding in float32 and in generators."""

SMALLEST = 1e-300
"""Squared length whose logarithm stands for that of no noise."""


@dataclass(frozen=True)
class Squares:
    """The squared length of noise, in units of its configured variance.

    Attributes:
        least: the same without the part that rounding may have added.
        freedom: number of the numbers.
    """

    energy: float = 0.0
    least: float = 0.0
    freedom: int = 0

    def __add__(self, other: "Squares") -> "Squares":
        return Squares(
            self.energy + other.energy, self.least + other.least, self.freedom + other.freedom
        )

    def interval(self, tail: float) -> Interval:
        """Return an interval of realised over configured noise; either end fails with `tail`."""
        confidence = 1 - 2 * tail
        low = std_interval(max(0.0, self.least), self.freedom, confidence).low
        high = std_interval(self.energy, self.freedom, confidence).high
        return Interval(low, high, confidence)


@dataclass(frozen=True)
class NoiseSums:
    """Sums of observed noise over independent steps.

    Attributes:
        tensors: of each tensor of the model; of all together for models of several sizes.
        logs: sum of the logarithms of the steps' energies; NaN for models of several sizes.
        least: smallest configured noise multiplier of any step.
    """

    steps: int = 0
    tensors: tuple[Squares, ...] = ()
    logs: float = 0.0
    least: float = math.inf
    own: bool = True

    @property
    def whole(self) -> Squares:
        return reduce(Squares.__add__, self.tensors, Squares())

    @property
    def filled(self) -> list[Squares]:
        """Sums of the tensors that have numbers."""
        return [each for each in self.tensors if each.freedom]

    def enough(self, confidence: float) -> bool:
        """Return whether no further runs are needed, also where there is no noise to observe."""
        filled = self.filled
        if not filled:
            return True
        # Every tensor must show the share, so that they divide both errors.
        tail, miss = (1 - confidence) / len(filled), UNLUCKY / len(filled)
        return min(each.freedom for each in filled) >= freedom_for(LEAST_SHARE, tail, miss)

    def worst(self, tail: float) -> float:
        """Return the lower limit of the tensor with the least noise, which holds for all."""
        filled = self.filled
        return min(each.interval(tail / len(filled)).low for each in filled)

    def __add__(self, other: "NoiseSums") -> "NoiseSums":
        least, own = min(self.least, other.least), self.own and other.own
        if not self.steps or not other.steps:
            return replace(self if self.steps else other, least=least, own=own)
        steps, logs = self.steps + other.steps, self.logs + other.logs
        sizes, others = ([each.freedom for each in one.tensors] for one in (self, other))
        if [size * other.steps for size in sizes] != [size * self.steps for size in others]:
            return NoiseSums(steps, (self.whole + other.whole,), math.nan, least, own)
        pairs = zip(self.tensors, other.tensors, strict=True)
        return NoiseSums(steps, tuple(a + b for a, b in pairs), logs, least, own)


NOTHING = NoiseSums()


def summed(steps: Iterable[Step]) -> NoiseSums:
    """Return the sums over independent steps; no sums if a step is configured without noise."""
    parts = []
    for step in steps:
        if step.std <= 0:
            return NoiseSums(least=0.0)
        energies = [each / step.std**2 for each in step.noise_energies]
        pairs = zip(energies, step.sizes, strict=True)
        tensors = tuple(Squares(energy, energy, size) for energy, size in pairs)
        log = math.log(max(sum(energies), SMALLEST))
        own = step.randomness != OWN_CODE
        parts.append(NoiseSums(1, tensors, log, step.noise_multiplier or 0.0, own))
    return total(parts)


def of_release(release: Release, scale: float) -> NoiseSums:
    """Return the sums of one recorded release, of which rounding makes a part.

    scale: configured standard deviation, or 1 where none is known.
    """
    tensors = tuple(
        Squares(
            energy / scale**2,
            (energy - size * (noisy_means.ROUNDING_MARGIN * rounding) ** 2) / scale**2,
            size,
        )
        for size, energy, rounding in release.by_array.values()
    )
    return NoiseSums(1, tensors, math.log(max(release.energy / scale**2, SMALLEST)))


def total(parts: Iterable[NoiseSums]) -> NoiseSums:
    return reduce(NoiseSums.__add__, parts, NOTHING)


@cache
def freedom_for(share: float, tail: float, miss: float) -> float:
    """Return how many numbers of correct noise show that it is at least a share of the configured.

    Args:
        share: in (0, 1).
        tail: probability that the shown lower limit is wrong.
        miss: probability that so many numbers do not show the share.
    """
    freedom = 1.0
    # Correct noise whose energy is unluckily low must still have this lower limit.
    while chi2.ppf(miss, freedom) < share**2 * chi2.isf(tail, freedom):
        freedom *= 1.01
    return freedom


def shape_p_value(noise: NoiseSums) -> float:
    """Return an upper bound on the probability that Gaussian lengths are as uneven, or as even.

    The statistic is the likelihood ratio of one scale for all steps against one for each. The scale
    itself cancels. Steps of several scales, and dependent numbers, make the lengths more uneven;
    numbers of constant size make them more even. The statistic has the moments of a Dirichlet
    distribution. Chernoff's bound from them holds for any number of steps.
    """
    whole, steps = noise.whole, noise.steps
    if steps < 2 or not whole.freedom or math.isnan(noise.logs):
        return 1.0
    all_halves, half = whole.freedom / 2, whole.freedom / steps / 2
    # half * sum log(share of step i in all energy): the shares are Dirichlet, whatever the scale.
    ratio = half * noise.logs - all_halves * math.log(whole.energy or SMALLEST)

    def bound(power: float) -> float:
        # log E e^(power R) - power * ratio (Chernoff), by the moments of a Dirichlet law.
        each = gammaln(half * (1 + power)) - gammaln(half)
        together = gammaln(all_halves) - gammaln(all_halves * (1 + power))
        return float(steps * each + together - power * ratio)

    # Negative powers bound the lower tail, of uneven steps; positive ones bound the upper tail.
    exponents = [
        minimize_scalar(bound, bounds=ends, method="bounded", options={"xatol": 1e-6}).fun
        for ends in ((-1 + 1e-6, 0.0), (0.0, 20.0))
    ]
    return float(min(1.0, 2 * np.exp(min(0.0, *exponents))))


def echo_p_value(noise: Floats) -> float:
    """Return the probability that fresh Gaussian noise [N] repeats itself as much at any distance.

    It repeats itself where the same numbers are used again, also reversed or moved: a product of
    numbers at one distance then has a mean other than 0. The normal approximation needs at least
    `LEAST_OVERLAP` products; Bonferroni's factor is for the distances.
    """
    distances = len(noise) - LEAST_OVERLAP
    if distances < 1:
        return 1.0
    spectrum = np.fft.rfft(noise, 2 * len(noise))
    sums = np.fft.irfft(np.abs(spectrum) ** 2)[1 : distances + 1]
    overlaps = len(noise) - np.arange(1, distances + 1)
    farthest = float(np.abs(sums / np.sqrt(overlaps)).max()) / float(np.mean(noise**2))
    return float(min(1.0, 2 * norm.sf(farthest) * distances))
