"""Observations of a loop, and what theory concludes from them.

Batches cut from shuffled records have no amplification by sampling. Without the target, a record of
the last batch moves into its place in the shuffle. Two batches change: one by two clipped
gradients, and one by one. An epoch is therefore as private as one Gaussian release with sensitivity
sqrt(5) times the clipping norm; under replacement, 2 times. This is a bound, not a calibration.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

from adversaries.statistics import gaussian
from adversaries.statistics.intervals import ALARM_CONFIDENCE, Interval
from fedsim.audits.judgement.claim import Finding
from fedsim.audits.loop.measurement import Influence, ObservedRun
from fedsim.audits.steps import checks, composition
from fedsim.audits.steps import noise as of_noise
from fedsim.audits.steps.noise import NOTHING, NoiseSums
from fedsim.audits.steps.step import SHOWN, Step
from fedsim.audits.steps.watch import POISSON
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism, Neighbouring, sensitivity

ALPHA = 1 - ALARM_CONFIDENCE
NOISE_TAIL = ALPHA / 6
"""Error at either end of the noise's intervals. A third of ALPHA is for all steps together, a third
for the tensors of the model, and a third for the single steps."""

OVERALL = ", over all steps,"
LEAST_NOISE = 1e-6
"""Noise multiplier below which there is no privacy."""

PASSES = "shuffled", "in order"
"""Samplers that draw each record once in a pass."""

FARTHEST = 2 * (1 + 1e-2)
"""Largest change of a step's clipped sum, in clipping norms, by a record that is in one term."""


@dataclass(frozen=True)
class LoopObservation:
    """Honest runs of a loop in both worlds.

    Attributes:
        present: runs with the target, one for each seed; the other runs have the first seeds.
        twin: runs with another record in its place.
        stranger: runs with other features of all records.
        records: n, the size of D.
        more: noise of all further runs, each with its own seed.
        varies: whether any two of these, in one world, released different numbers.
        changed: names of tensors that depend on the data while every released step stays the same;
            None where a replay cannot tell.
        echo: p-value of the repetition of noise in the runs with the target.
    """

    present: tuple[ObservedRun, ...]
    absent: tuple[ObservedRun, ...]
    twin: tuple[ObservedRun, ...]
    records: int
    neighbouring: Neighbouring
    stranger: tuple[ObservedRun, ...] = ()
    more: NoiseSums = NOTHING
    varies: bool = False
    changed: tuple[str, ...] | None = ()
    influence: Influence = field(default_factory=Influence)
    echo: float = 1.0

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.present[0].steps

    @property
    def runs(self) -> tuple[ObservedRun, ...]:
        return (*self.present, *self.absent, *self.twin, *self.stranger)

    @cached_property
    def seeded(self) -> bool:
        """Whether runs with different seeds released the same, or noise was used again."""
        outputs, runs = {each.released for each in self.present}, len(self.present)
        # A mechanism with few possible outputs repeats them by chance, but not always the same.
        many = all(run.values >= SHOWN for run in self.present)
        repeats = len(outputs) < runs and (many or (len(outputs) == 1 and not self.varies))
        noises = [
            tuple(round(each / step.std, 3) for each in step.noise)
            for run in self.present
            for step in run.steps
            if step.std and len(step.noise) == SHOWN
            if any(step.noise)  # missing noise has its own finding
        ]
        return repeats or self.echo < ALPHA or len(set(noises)) < len(noises)

    @property
    def independent(self) -> tuple[ObservedRun, ...]:
        """Runs with the target that statistics may count as independent."""
        return self.present[:1] if self.seeded else self.present

    @property
    def varied(self) -> tuple[str, ...]:
        """Settings of a step that differ between runs."""
        steps = list(zip(*(each.steps for each in self.runs), strict=False))
        return tuple(
            setting
            for setting, value in SETTINGS.items()
            if any(len({_rounded(value(step)) for step in together}) > 1 for together in steps)
        )

    @property
    def explained(self) -> bool:
        """Whether the observed steps alone read the data, as far as the runs show."""
        others = (self.twin, self.stranger)
        pairs = [pair for other in others for pair in zip(self.present, other, strict=False)]
        starts = [each.start == other.start for each, other in pairs]
        alone = self.changed == () and all(each.explained for each in self.runs)
        return alone and all(starts) and not self.beside

    @cached_property
    def beside(self) -> tuple[str, ...]:
        """Names of integer tensors that differ between honest runs.

        One that is the same in all runs, such as a number of steps, reveals no record.
        """
        pairs = Counter(pair for run in self.runs for pair in set(run.beside))
        return tuple(sorted({name for (name, _), times in pairs.items() if times < len(self.runs)}))

    @property
    def unlike(self) -> tuple[str, ...]:
        """Parts of the mechanism that differ between the worlds, in words."""
        if any(checks.divides_by_batch(each.steps) for each in self.present):
            return ("the divisor is the size of the drawn batch",)
        differing = []
        for part, values in VALUES.items():
            with_it, without = (
                {_rounded(value) for each in runs for value in values(each)}
                for runs in (self.present, self.absent)
            )
            # Chance may separate two runs, but dependence on the data separates all of them.
            if with_it and without and not with_it & without:
                ends = f"{min(with_it):g} with the target, {min(without):g} without it"
                differing.append(f"the {part} is {ends}")
        return tuple(differing)

    @cached_property
    def noise(self) -> NoiseSums:
        runs = of_noise.total(of_noise.summed(run.steps) for run in self.independent)
        return runs if self.seeded else runs + self.more

    @cached_property
    def noise_ratios(self) -> dict[str, Interval]:
        """Realised over configured noise by part, all together with ALARM_CONFIDENCE.

        The squared length of the noise is chi-square. The parts are all steps of all runs, each
        tensor of the model in all of them, and each step of the honest runs.
        """
        whole = self.noise
        if not whole.steps:
            return {}
        tensors = of_noise.of_tensors(whole)
        parts = {f"in the model{OVERALL}": (sum(whole.energies), whole.freedom, NOISE_TAIL)}
        for place, each in enumerate(tensors, 1):
            name = f"in tensor {place} of the model's {len(tensors)}{OVERALL}"
            parts[name] = *each, NOISE_TAIL / len(tensors)
        runs = [each.steps for each in self.independent]
        if len({len(each) for each in runs}) == 1:
            for place, together in enumerate(zip(*runs, strict=True), 1):
                part = of_noise.summed(together)
                if part.steps:
                    tail = NOISE_TAIL / len(runs[0])
                    parts[f"in step {place}"] = sum(part.energies), part.freedom, tail
        return {name: of_noise.interval(*part) for name, part in parts.items()}

    @property
    def noise_off(self) -> tuple[str, Interval] | None:
        """The part with the least noise below the configured, and its interval; None without one.

        A single step counts only where the steps do not share one scale.
        """
        least = 1 - of_noise.TOLERANCE
        off = [(where, each) for where, each in self.noise_ratios.items() if each.high < least]
        whole = [each for each in off if each[0].endswith(OVERALL)]
        chosen = whole if whole and self.one_scale else off
        return min(chosen, key=lambda each: each[1].high, default=None)

    @cached_property
    def one_scale(self) -> bool:
        """Whether the noise may be Gaussian with one scale of the configured noise in all steps."""
        return of_noise.shape_p_value(self.noise) >= ALPHA

    @cached_property
    def batches(self) -> list[Finding]:
        """How the batches contradict Poisson sampling at the accountants' rate.

        Where the sampler's own rate is lower, it is tested instead, and the accountant's rate holds
        too. The tests hold together with `ALARM_CONFIDENCE`: of the batches' sizes, and of every
        record's count. Records drawn more than once need no test.
        """
        runs = self.independent
        steps = [step for run in runs for step in run.steps]
        if not steps or any(step.members is None for step in steps):
            return []
        wrong = checks.twice(steps)
        if self.kept_by_chance:
            return wrong
        # Rate that amplifies a step: the accountant's, or the sampler's if lower; 1 without either.
        # A loop may keep some of the data for another purpose.
        sampled = [
            replace(
                step,
                sample_rate=min(step.charged_rate or 1.0, step.sample_rate or 1.0),
                records=runs[0].size,
            )
            for step in steps
        ]
        of_sizes = checks.sizes(sampled, ALPHA / 2)[1]
        return [*wrong, *of_sizes, *checks.favoured(sampled, ALPHA / 2)[1]]

    @property
    def kept_by_chance(self) -> bool:
        return len({run.size for run in self.present}) > 1

    @property
    def moved(self) -> float:
        """How far one record moves a step, as a multiple of what its one clipped term allows.

        It is at least 1. A replaced record moves the sum by at most two clipping norms, so that a
        larger change is that of several terms, each of which the noise must hide.
        """
        farthest = self.influence.moved
        return farthest / 2 if farthest > FARTHEST and self._comparable else 1.0

    @property
    def entangled(self) -> int:
        """Number of gradients that one replaced record changes in a step; it should be 1."""
        return self.influence.gradients if self._comparable else min(1, self.influence.gradients)

    @property
    def strays(self) -> int:
        """Number of gradients of a step that changed, less that of the replaced records in it."""
        return self.influence.strays if self._comparable else 0

    @cached_property
    def _comparable(self) -> bool:
        """Whether nothing that has its own finding changes the steps of all records."""
        steps = [step for run in self.present for step in run.steps]
        wrong = any(not step.clipped or step.adaptive or step.repeated > 1 for step in steps)
        wrong |= self.displaced > 1 or self.present[0].unnoised > 0
        return not (wrong or self.changed or self.varied)

    @property
    def displaced(self) -> int:
        """Number of the loader's records that differ where one record of the data does.

        It should be 1. It is 0 where the data set makes its records, so that they are unknown.
        """
        counts = (
            (Counter(with_it.records) - Counter(without.records)).total()
            for with_it, without in zip(self.present, self.twin, strict=False)
            if with_it.records and without.records
        )
        return max(self.influence.copies, *counts, 0)


def _rounded(value: float) -> float:
    """Return a number measured in float32, without its rounding."""
    return float(f"{value:.5g}")


VALUES: dict[str, Callable[[ObservedRun], set[float]]] = {
    "number of steps": lambda run: {float(len(run.steps))} if run.steps else set(),
    "divisor": lambda run: {step.divisor for step in run.steps},
    "accounted sampling rate": lambda run: {step.charged_rate for step in run.steps},
}
"""Parts of a mechanism that must not depend on the data, as observed in a run."""

SETTINGS: dict[str, Callable[[Step], float]] = {
    "clipping norm": lambda step: step.clipping_norm or 0.0,
    "noise multiplier": lambda step: step.noise_multiplier or 0.0,
}
"""Settings that a mechanism may change from step to step, but not depending on the data."""


def mechanism(observation: LoopObservation, scale: float = 1.0) -> Mechanism | None:
    """Return the Gaussian steps of a loop; None where theory cannot compose it."""
    multipliers = _multipliers(observation, scale)
    if multipliers is None or min(multipliers) < LEAST_NOISE:
        return None
    records = observation.present[0].size  # without records kept for another purpose
    rates = []
    for step in observation.steps:
        if step.sampling == POISSON and not observation.batches:
            rates.append(step.sample_rate or 1.0)
        elif step.sampling in PASSES and step.batch == records and step.repeated == 1:
            rates.append(1.0)
        else:
            return None
    return composition.mechanism(multipliers, rates, observation.neighbouring)


def _multipliers(observation: LoopObservation, scale: float) -> list[float] | None:
    """Return each step's noise multiplier for its true sensitivity, times `scale`.

    None where more than the steps reads the data.
    """
    steps = [step for run in observation.present for step in run.steps]
    wrong = any(step.clipped is not True or step.adaptive for step in steps)
    wrong |= bool(observation.unlike or observation.varied or observation.seeded)
    wrong |= observation.kept_by_chance or observation.displaced > 1
    wrong |= observation.strays > 0 and observation.moved == 1  # by how much, is not known
    if wrong or not observation.explained:
        return None
    allowed = sensitivity(observation.neighbouring, 1.0) * observation.moved
    limits = [(step.clipping_norm or 0.0) * allowed for step in observation.steps]
    return [
        scale * step.std / limit if limit else 0.0
        for step, limit in zip(observation.steps, limits, strict=True)
    ]


def refuted(observation: LoopObservation, delta: float, claimed: float) -> bool:
    """Return whether the measured change by one record disproves a claim, without any attack.

    Every step with the record must show the change, and the noise counts at the most that was
    measured.
    """
    always = replace(observation.influence, moved=observation.influence.always)
    as_shown = replace(observation, influence=always)
    if as_shown.moved == 1:
        return False
    most = max((each.high for each in observation.noise_ratios.values()), default=math.inf)
    shown = epsilon(as_shown, delta, max(1.0, most)) if math.isfinite(most) else None
    return shown is not None and shown > claimed


def epsilon(observation: LoopObservation, delta: float, scale: float | None = None) -> float | None:
    """Return epsilon of all steps by theory; None where theory does not know the loop.

    scale: realised over configured noise; None: 1, or the lower limit of the part with too little.
    """
    off = observation.noise_off
    if scale is None:
        scale = 1.0 if off is None else off[1].low
    multipliers = _multipliers(observation, scale)
    if multipliers is None:
        return None
    if min(multipliers) < LEAST_NOISE:
        return math.inf
    # Missing noise has its own measurement; noise of another shape has no known guarantee.
    if not observation.one_scale and off is None:
        return None
    composed = mechanism(observation, scale)
    if composed is not None:
        return PLD.epsilon(composed, delta)
    steps = [step for run in observation.present for step in run.steps]
    if not all(step.sampling == "shuffled" and step.repeated < 2 for step in steps):
        return None
    # A record may be in every pass that began, however few records a pass drew.
    epochs = max(run.epochs for run in observation.runs)
    # Under replacement the multiplier already assumes twice the clipping norm.
    apart = math.sqrt(5) if observation.neighbouring is Neighbouring.ADD_REMOVE else 1.0
    return gaussian.epsilon(apart * math.sqrt(epochs) / min(multipliers), delta)
