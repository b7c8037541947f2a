"""What theory concludes from a training's steps, at the configured noise and at the measured.

Batches cut from shuffled records have no amplification by sampling. Without the target, a record of
the last batch moves into its place in the shuffle. Two batches change: one by two clipped
gradients, and one by one. An epoch is therefore as private as one Gaussian release with sensitivity
sqrt(5) times the clipping norm; under replacement, 2 times. This is a bound, not a calibration.

In a recorded loop, the neighbour's record adds nothing in its place, so that its batches are known.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from adversaries.statistics import gaussian
from fedsim.audits.judgement.claim import Finding
from fedsim.audits.results.numbers import Real
from fedsim.audits.results.rows import Limit, Noise, Source
from fedsim.audits.run import detectable
from fedsim.audits.run.detectable import POWER
from fedsim.audits.steps import rules, sampling
from fedsim.audits.steps.noise import LEAST_SHARE, TOLERANCE
from fedsim.audits.steps.observation import NOISE_TAIL, Observation
from fedsim.audits.steps.rules import UNKNOWN, broken
from fedsim.audits.steps.watch import POISSON, Step
from fedsim.privacy.accounting import PLD
from fedsim.privacy.identifiability import rho_alpha
from fedsim.privacy.mechanism import Mechanism, Neighbouring, Steps, sensitivity

LEAST_NOISE = 1e-6
"""Noise multiplier below which there is no privacy."""

GRID = 0.01
"""Share of a sampled epsilon that the accountant's grid may have added; proofs leave it out."""

PASSES = "shuffled", "in order"
"""Samplers that draw each record once in a pass."""


@dataclass(frozen=True)
class Composition:
    """All steps of a training together.

    Attributes:
        sampled: the Gaussian steps, each of a Poisson sample; None for other batches.
        mu: signal-to-noise ratio of all steps, for other batches.
    """

    sampled: Mechanism | None = None
    mu: float = math.inf

    def epsilon(self, delta: float) -> float:
        if self.sampled is not None:
            return PLD.epsilon(self.sampled, delta)
        return gaussian.epsilon(self.mu, delta)

    def limit(self, delta: float, source: Source) -> Limit:
        sampled = self.sampled
        most = gaussian.advantage(self.mu) if sampled is None else rho_alpha(sampled)
        return Limit.of_epsilon(self.epsilon(delta), most, source)


def composed(seen: Observation, scale: float | None = None) -> Composition | None:
    """Return all steps together; None where theory does not know the training.

    scale: realised over configured noise; None: 1, or the lower limit of the part with too little.
    """
    if seen.shown is not None:
        return _together(seen, seen.shown)
    off = seen.noise_off
    if scale is None:
        scale = 1.0 if off is None else off[1].low
    multipliers = _multipliers(seen, scale)
    if multipliers is None:
        return None
    # Missing noise has its own measurement; noise of another shape has no known guarantee.
    if min(multipliers) >= LEAST_NOISE and off is None and not seen.one_scale:
        return None
    return _together(seen, multipliers)


def epsilon(seen: Observation, delta: float, scale: float | None = None) -> float | None:
    """Return epsilon of all steps by theory, as `composed`."""
    found = composed(seen, scale)
    return None if found is None else found.epsilon(delta)


def mechanism(seen: Observation) -> Mechanism | None:
    """Return the Gaussian steps of a loop; None where theory cannot compose it."""
    multipliers = _multipliers(seen, 1.0)
    found = None if multipliers is None else _together(seen, multipliers)
    return None if found is None else found.sampled


def surely(seen: Observation, multipliers: Sequence[float], delta: float) -> float:
    """Return an epsilon that recorded steps with noise of at most these multipliers exceed."""
    if 0.0 in multipliers:
        return math.inf
    known, rates = 0.0, _rates(seen)
    if rates is None:
        known = gaussian.epsilon(_least_mu(seen.steps, multipliers), delta)
        *_, rate, several = sampling.favoured(seen.sampled) or (0.0, True)
        rates = [] if several else [rate] * len(multipliers)
    elif not sampling.tested(seen.steps):
        rates = []
    return max(known, (1 - GRID) * epsilon_of(multipliers, rates, delta) if rates else 0.0)


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


def _multipliers(seen: Observation, scale: float) -> list[float] | None:
    """Return each step's noise multiplier for its true sensitivity, times `scale`.

    None where more than the steps reads the data.
    """
    wrong = any(step.clipped is not True or step.adaptive for step in seen.all_steps)
    wrong |= bool(seen.unlike or seen.divides_by_batch or seen.varied or seen.seeded)
    wrong |= seen.kept_by_chance or seen.displaced > 1 or not seen.steps
    wrong |= seen.strays > 0 and seen.moved == 1  # by how much, is not known
    if wrong or not seen.explained:
        return None
    allowed = sensitivity(seen.neighbouring, 1.0) * seen.moved
    limits = [(step.clipping_norm or 0.0) * allowed for step in seen.steps]
    return [
        scale * step.std / limit if limit else 0.0
        for step, limit in zip(seen.steps, limits, strict=True)
    ]


def _together(seen: Observation, multipliers: Sequence[float]) -> Composition | None:
    """Return steps with these noise multipliers, with the batches that the rules allow."""
    # With one record fewer, the divisor of a recorded loop would, or may, change.
    divided = seen.recorded and broken(seen, "data-dependent-divisor")
    if divided or min(multipliers) < LEAST_NOISE:
        return Composition()
    rates = _rates(seen)
    if rates is not None:
        return Composition(gaussian_steps(multipliers, rates, seen.neighbouring))
    mu = _mu_of_record(seen.steps, multipliers) if seen.recorded else _mu_of_passes(seen)
    return None if mu is None else Composition(mu=mu / (1 if seen.recorded else min(multipliers)))


def _rates(seen: Observation) -> list[float] | None:
    """Return each step's rate, where all batches are Poisson samples or have all records."""
    if seen.recorded:
        rates = [step.sample_rate or 0.0 for step in seen.steps]
        return rates if rules.amplified(seen) else None
    poisson, rates = not broken(seen, "sampler"), list[float]()
    for step in seen.steps:
        # Without records kept for another purpose.
        whole = step.sampling in PASSES and step.batch == seen.present[0].size
        if poisson and step.sampling == POISSON:
            rates.append(step.sample_rate or 1.0)
        elif whole and step.repeated == 1:
            rates.append(1.0)
        else:
            return None
    return rates


def _mu_of_passes(seen: Observation) -> float | None:
    """Return the signal of batches cut from shuffled records, in noise of multiplier 1."""
    if not all(step.sampling == "shuffled" and step.repeated < 2 for step in seen.all_steps):
        return None
    # A record may be in every pass that began, however few records a pass drew.
    epochs = max(run.epochs for run in seen.runs)
    # Under replacement the multiplier already assumes twice the clipping norm.
    apart = math.sqrt(5) if seen.neighbouring is Neighbouring.ADD_REMOVE else 1.0
    return apart * math.sqrt(epochs)


def _mu_of_record(steps: Sequence[Step], multipliers: Sequence[float]) -> float:
    """Return the signal-to-noise ratio of the record that took part most, over all steps."""
    squares, unknown = defaultdict[int, float](float), any(step.members is None for step in steps)
    for step, z in zip(steps, multipliers, strict=True):
        # Unknown batches: any record may have been in all of them. A record that is several times
        # in a batch changes the sum by as many clipping norms.
        drawn = {0: step.accumulated} if unknown else Counter(step.members)
        for member, times in drawn.items():
            squares[member] += (times / z) ** 2
    return math.sqrt(max(squares.values(), default=0.0))


def _least_mu(steps: Sequence[Step], multipliers: Sequence[float]) -> float:
    """Return a ratio that every record surely has: that of the sum of all steps."""
    counts = Counter(member for step in steps for member in step.members or ())
    # If some records took part more often by chance, they may do so less another time.
    if any(step.members is None for step in steps) or len(set(counts.values())) != 1:
        return 0.0
    # The sum of all steps moves by count * C, in noise of variance sum z^2 C^2.
    return max(counts.values()) / math.sqrt(sum(z**2 for z in multipliers))


@dataclass(frozen=True)
class Judged:
    """What a training's steps show, before any claim.

    Attributes:
        limit: of all steps; None where theory does not know the training.
        unknown: why not.
        unsure: what theory takes for granted, and the audit cannot check.
    """

    limit: Limit | None
    findings: tuple[Finding, ...]
    unknown: tuple[str, ...]
    unsure: tuple[str, ...]


def judged(seen: Observation, delta: float) -> Judged:
    found = composed(seen)
    source: Source = "measured" if not seen.recorded and seen.noise_off else "theory"
    return Judged(
        limit=None if found is None else found.limit(delta, source),
        findings=rules.findings(seen),
        unknown=() if found is not None else rules.reasons(rules.UNKNOWNS, seen)[:1],
        unsure=rules.reasons(rules.DOUBTS, seen),
    )


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
    sums, freedom = seen.noise, seen.noise.whole.freedom
    if not sums.steps or not seen.steps:
        return None
    least = min(1.0, sums.worst(1 - confidence))
    return MeasuredNoise(
        at_least=least,
        confidence=confidence,
        epsilon=epsilon(seen, delta, least),
        seen_below=detectable.by_energy(freedom, NOISE_TAIL) * (1 - TOLERANCE),
        numbers=freedom,
        runs=round(sums.steps / len(seen.steps)),
    )


def short(noise: MeasuredNoise | None) -> list[str]:
    """Return why the measured noise does not support a claim; empty where it does."""
    if noise is None or noise.epsilon is None:
        return [UNKNOWN]
    if noise.at_least >= LEAST_SHARE:
        return []
    return [
        f"only {noise.at_least:.3g} of the configured noise was measured ({noise.confidence:.0%} "
        f"confidence, {noise.runs} runs), below {LEAST_SHARE:.2g}; give more --trials"
    ]
