"""What theory concludes from a training's steps, at the configured noise and at the measured.

Batches cut from shuffled records have no amplification by sampling. Without the target, a record of
the last batch moves into its place in the shuffle. Two batches change: one by two clipped
gradients, and one by one. An epoch is therefore as private as one Gaussian release with sensitivity
sqrt(5) times the clipping norm; under replacement, 2 times. This is a bound, not a calibration.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from adversaries.statistics import gaussian
from fedsim.audits.results.numbers import Real
from fedsim.audits.results.rows import Noise
from fedsim.audits.run import detectable
from fedsim.audits.run.detectable import POWER
from fedsim.audits.steps import statistics
from fedsim.audits.steps.observation import NOISE_TAIL, Observation
from fedsim.audits.steps.rules import UNKNOWN, broken
from fedsim.audits.steps.watch import POISSON
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism, Neighbouring, Steps, sensitivity

LEAST_NOISE = 1e-6
"""Noise multiplier below which there is no privacy."""

PASSES = "shuffled", "in order"
"""Samplers that draw each record once in a pass."""


def mechanism(seen: Observation, scale: float = 1.0) -> Mechanism | None:
    """Return the Gaussian steps of a loop; None where theory cannot compose it."""
    multipliers = _multipliers(seen, scale)
    rates = [*_rates(seen)]
    if multipliers is None or min(multipliers) < LEAST_NOISE or None in rates:
        return None
    sampled = [rate or 1.0 for rate in rates]
    return gaussian_steps(multipliers, sampled, seen.neighbouring)


def _rates(seen: Observation) -> Iterator[float | None]:
    """Yield the rate that amplifies each step; None where batches are neither samples nor full."""
    records = seen.present[0].size  # without records kept for another purpose
    for step in seen.steps:
        whole = step.sampling in PASSES and step.batch == records and step.repeated == 1
        poisson = step.sampling == POISSON and not broken(seen, "sampler")
        yield (step.sample_rate or 1.0) if poisson else 1.0 if whole else None


def _multipliers(seen: Observation, scale: float) -> list[float] | None:
    """Return each step's noise multiplier for its true sensitivity, times `scale`.

    None where more than the steps reads the data.
    """
    wrong = any(step.clipped is not True or step.adaptive for step in seen.all_steps)
    wrong |= bool(seen.unlike or seen.divides_by_batch or seen.varied or seen.seeded)
    wrong |= seen.kept_by_chance or seen.displaced > 1
    wrong |= seen.strays > 0 and seen.moved == 1  # by how much, is not known
    if wrong or not seen.explained:
        return None
    allowed = sensitivity(seen.neighbouring, 1.0) * seen.moved
    limits = [(step.clipping_norm or 0.0) * allowed for step in seen.steps]
    return [
        scale * step.std / limit if limit else 0.0
        for step, limit in zip(seen.steps, limits, strict=True)
    ]


def epsilon(seen: Observation, delta: float, scale: float | None = None) -> float | None:
    """Return epsilon of all steps by theory; None where theory does not know the loop.

    scale: realised over configured noise; None: 1, or the lower limit of the part with too little.
    """
    off = seen.noise_off
    if scale is None:
        scale = 1.0 if off is None else off[1].low
    multipliers = _multipliers(seen, scale)
    if multipliers is None:
        return None
    if min(multipliers) < LEAST_NOISE:
        return math.inf
    # Missing noise has its own measurement; noise of another shape has no known guarantee.
    if not seen.one_scale and off is None:
        return None
    composed = mechanism(seen, scale)
    if composed is not None:
        return PLD.epsilon(composed, delta)
    steps = seen.all_steps
    if not all(step.sampling == "shuffled" and step.repeated < 2 for step in steps):
        return None
    # A record may be in every pass that began, however few records a pass drew.
    epochs = max(run.epochs for run in seen.runs)
    # Under replacement the multiplier already assumes twice the clipping norm.
    apart = math.sqrt(5) if seen.neighbouring is Neighbouring.ADD_REMOVE else 1.0
    return gaussian.epsilon(apart * math.sqrt(epochs) / min(multipliers), delta)


def epsilon_of(multipliers: Sequence[float], rates: Sequence[float], delta: float) -> float:
    """Return epsilon of Gaussian steps, each of a Poisson sample; infinite without noise."""
    return (
        math.inf if 0.0 in multipliers else PLD.epsilon(gaussian_steps(multipliers, rates), delta)
    )


def gaussian_steps(
    multipliers: Sequence[float],
    rates: Sequence[float],
    neighbouring: Neighbouring = Neighbouring.ADD_REMOVE,
) -> Mechanism:
    """Return the mechanism of Gaussian steps, each of a Poisson sample."""
    # Equal steps differ in the last digits, because they were computed differently.
    kinds = Counter(
        (float(f"{z:.9g}"), float(f"{q:.12g}")) for z, q in zip(multipliers, rates, strict=True)
    )
    steps = tuple(Steps(z, count, min(1.0, q)) for (z, q), count in kinds.items())
    return Mechanism(steps, neighbouring)


@dataclass(frozen=True)
class MeasuredNoise:
    """The measured noise of all steps, against the configured noise."""

    at_least: Real
    """Lower bound on the share of the configured noise that was added; at most 1."""
    confidence: Real
    epsilon: Real | None
    """Epsilon at the least noise that was measured; None where theory does not know the loop."""
    seen_below: Real
    """Share below which the rule `realised-noise` objects with probability 95 %."""
    numbers: int
    runs: int

    @property
    def ratio(self) -> Noise:
        """The measured noise over the configured noise, of which the low end is known."""
        return Noise(self.at_least, math.inf, self.confidence)

    @property
    def missed_below(self) -> float:
        """Share of trainings with missing noise below which all `runs` had noise by chance."""
        return float(1 - (1 - POWER) ** (1 / max(1, self.runs)))


def measured(seen: Observation, delta: float, confidence: float) -> MeasuredNoise | None:
    """Return the measured noise; None where no step with noise was observed."""
    sums = seen.noise
    if not sums.steps or not seen.steps:
        return None
    least = min(1.0, statistics.worst(sums, 1 - confidence))
    return MeasuredNoise(
        at_least=least,
        confidence=confidence,
        epsilon=epsilon(seen, delta, least),
        seen_below=detectable.by_energy(sums.freedom, NOISE_TAIL) * (1 - statistics.TOLERANCE),
        numbers=sums.freedom,
        runs=round(sums.steps / len(seen.steps)),
    )


def short(noise: MeasuredNoise | None) -> list[str]:
    """Return why the measured noise does not support a claim; empty where it does."""
    if noise is None or noise.epsilon is None:
        return [UNKNOWN]
    if noise.at_least >= statistics.LEAST_SHARE:
        return []
    return [
        f"only {noise.at_least:.3g} of the configured noise was measured ({noise.confidence:.0%} "
        f"confidence, {noise.runs} runs), below {statistics.LEAST_SHARE:.2g}; give more --trials"
    ]
