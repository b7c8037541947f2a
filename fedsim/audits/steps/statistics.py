"""Statistics of watched steps: the size and shape of their noise, and how batches were drawn."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import bdtrc, gammaln
from scipy.stats import chi2, norm

from adversaries.arrays import Floats
from adversaries.attacks import residuals
from adversaries.attacks.noisy_means import std_interval
from adversaries.statistics.intervals import ALARM_CONFIDENCE, Interval, binomial_low
from fedsim.audits.steps.watch import OWN_CODE, POISSON, Step

LEAST_OVERLAP, LONGEST_NOISE = 1000, 2**20
"""Products of noise at one distance that a test of repetition needs, and numbers that it takes."""

LEAST_SHARE = 0.97
"""Share of the configured noise that must have been measured in a supported loop."""

UNLUCKY = 0.001
"""Probability that correct noise of the planned number of runs does not show that share."""

TOLERANCE = 1e-3
"""Relative shortfall of noise that is due to rounding in float32 and in generators."""


@dataclass(frozen=True)
class NoiseSums:
    """Sums of observed noise over steps.

    Attributes:
        energies: squared lengths of the tensors' noise, in units of the configured variance.
        least: smallest configured noise multiplier of any step.
    """

    steps: int = 0
    sizes: tuple[int, ...] = ()
    energies: tuple[float, ...] = ()
    logs: float = 0.0
    least: float = math.inf
    own: bool = True

    @property
    def freedom(self) -> int:
        return self.steps * sum(self.sizes)

    def enough(self, confidence: float) -> bool:
        """Return whether no further runs are needed, also where there is no noise to observe."""
        sizes = [size for size in self.sizes if size]
        if not sizes:
            return True
        # Every tensor must show the share, so that they divide both errors.
        tail, miss = (1 - confidence) / len(sizes), UNLUCKY / len(sizes)
        return min(sizes) * self.steps >= freedom_for(LEAST_SHARE, tail, miss)

    def __add__(self, other: "NoiseSums") -> "NoiseSums":
        least, own = min(self.least, other.least), self.own and other.own
        if not self.steps or not other.steps:
            return replace(self if self.steps else other, least=least, own=own)
        if self.sizes != other.sizes:  # the noise of models of several sizes cannot be added
            return NoiseSums(least=least, own=own)
        energies = tuple(a + b for a, b in zip(self.energies, other.energies, strict=True))
        logs = self.logs + other.logs
        return NoiseSums(self.steps + other.steps, self.sizes, energies, logs, least, own)


NOTHING = NoiseSums()


def summed(steps: Iterable[Step]) -> NoiseSums:
    """Return the sums over independent steps; no sums if a step is configured without noise."""
    parts = []
    for step in steps:
        if step.std <= 0:
            return NoiseSums(least=0.0)
        energies = tuple(each / step.std**2 for each in step.noise_energies)
        log = math.log(max(sum(energies), 1e-300))
        least, own = step.noise_multiplier or 0.0, step.randomness != OWN_CODE
        parts.append(NoiseSums(1, step.sizes, energies, log, least, own))
    return total(parts)


def total(parts: Iterable[NoiseSums]) -> NoiseSums:
    return reduce(NoiseSums.__add__, parts, NoiseSums())


def interval(energy: float, freedom: int, tail: float) -> Interval:
    """Return an interval of realised over configured noise; either end fails with `tail`."""
    return std_interval(energy, freedom, 1 - 2 * tail)


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
    half, steps = sum(noise.sizes) / 2, noise.steps
    if steps < 2 or not half:
        return 1.0
    whole = half * steps
    # half * sum log(share of step i in all energy): the shares are Dirichlet, whatever the scale.
    ratio = half * noise.logs - whole * math.log(sum(noise.energies) or 1e-300)

    def bound(power: float) -> float:
        # log E e^(power R) - power * ratio (Chernoff), by the moments of a Dirichlet law.
        each = gammaln(half * (1 + power)) - gammaln(half)
        return float(steps * each + gammaln(whole) - gammaln(whole * (1 + power)) - power * ratio)

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


def worst(noise: NoiseSums, tail: float) -> float:
    """Return the lower limit of the tensor with the least noise, which holds for all tensors."""
    return min(interval(*each, tail / len(noise.sizes)).low for each in of_tensors(noise))


def of_tensors(noise: NoiseSums) -> Sequence[tuple[float, int]]:
    return [
        (energy, size * noise.steps)
        for energy, size in zip(noise.energies, noise.sizes, strict=True)
        if size
    ]


ALPHA = 1 - ALARM_CONFIDENCE
TAIL = ALPHA / 2
"""Error of each of the two tests: of the batches' sizes, and of every record's count."""


def sizes(steps: Sequence[Step]) -> tuple[float, ...]:
    """Test the sizes of batches against Poisson samples.

    Returns the declared and the measured rate, the dispersion and the p-value of sizes that
    contradict them; () where none do.
    """
    kinds, found = _kinds(steps), list[tuple[float, ...]]()
    for (rate, records), listed in kinds.items():
        if max(listed) <= records:
            test = residuals.sampling_test(np.array(listed, float), records, rate)
            p_value = min(1.0, test.p_value * len(kinds))
            found.append((rate, test.rate, test.dispersion, p_value))
    worst = min(found, key=lambda one: one[-1], default=(1.0,))
    return worst if worst[-1] < TAIL else ()


def favoured(steps: Sequence[Step]) -> tuple[float, ...]:
    """Test how often the record took part that was drawn most.

    Returns its number of batches, that of all, their mean rate, the least rate of that record, and
    whether steps have several rates; () for a count that chance explains.
    """
    rates = [step.sample_rate or step.charged_rate or 1.0 for step in steps]
    taken = [np.unique(np.asarray(step.members, int)) for step in steps if step.members is not None]
    together = np.concatenate([*taken, np.zeros(0, int)])
    if len(taken) < len(steps) or not together.size or max(rates) >= 1:
        return ()
    # Coins of several rates exceed their mean no more often than coins of the mean rate
    # (Hoeffding, "On the distribution of the number of successes in independent trials", 1956).
    rate, most = float(np.mean(rates)), int(np.bincount(together).max())
    several = len(set(rates)) > 1
    records = steps[0].records or int(together.max()) + 1
    # Any record may be the favoured one: a union bound over all of them.
    chance = records * float(bdtrc(most - 1, len(steps), rate))
    if chance >= TAIL or (several and most <= rate * len(steps) + 1):
        return ()
    return most, len(steps), rate, float(binomial_low(most, len(steps), TAIL / records)), several


def tested(steps: Sequence[Step]) -> bool:
    """Return whether the sampling is known: recorded, or batches of one size would have shown."""
    sampled = [step for step in steps if (step.sample_rate or 1.0) < 1]
    if all(step.sampling == POISSON for step in sampled):
        return True
    kinds = _kinds(sampled)
    if sum(map(len, kinds.values())) < len(sampled):
        return False
    return all(
        residuals.sampling_test(
            np.full(len(listed), round(records * rate), float), records, rate
        ).p_value
        < TAIL
        for (rate, records), listed in kinds.items()
    )


def divides_by_batch(steps: Sequence[Step]) -> bool:
    """Return whether the divisor of every step is the size of its batch, which varies."""
    own = [step for step in steps if step.batch]
    return len({step.batch for step in own}) > 1 and all(
        math.isclose(step.divisor, step.batch or 0, rel_tol=1e-5) for step in own
    )


def _kinds(steps: Sequence[Step]) -> dict[tuple[float, int], list[int]]:
    """Return the sizes of single batches that are declared Poisson samples, by q and N."""
    kinds: dict[tuple[float, int], list[int]] = {}
    for step in steps:
        rate, single = step.sample_rate, step.accumulated == 1
        if rate is not None and rate < 1 and single and step.batch is not None and step.records:
            kinds.setdefault((rate, step.records), []).append(step.batch)
    return kinds
