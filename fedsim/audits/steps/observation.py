"""What is observed of a training, which rules and theory judge, whatever its source.

An auditor runs a loop many times, in several worlds. An app's client trains in a few runs, and a
recorder sees one.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property

from adversaries.statistics.intervals import Interval
from fedsim.audits.steps import sampling
from fedsim.audits.steps.noise import (
    ALPHA,
    NOTHING,
    TOLERANCE,
    NoiseSums,
    shape_p_value,
    summed,
    total,
)
from fedsim.audits.steps.watch import SHOWN, Statement, Step
from fedsim.privacy.mechanism import Neighbouring

NOISE_TAIL = ALPHA / 6
"""Error at either end of the noise's intervals. A third of ALPHA is for all steps together, a third
for the tensors of the model, and a third for the single steps."""

OVERALL = ", over all steps,"
FARTHEST = 2 * (1 + 1e-2)
"""Largest change of a step's clipped sum, in clipping norms, by a record that is in one term."""


@dataclass(frozen=True)
class ObservedRun:
    """Observations of one run.

    Attributes:
        size: n, the number of records of a loader; 0 without one.
        records: checksums of the records of a loader, sorted; () where they are not known.
        computed: class of a loader's data set that computes its records; "" for any other.
        explained: whether those steps alone moved the model.
        epochs: passes over the data that steps drew from, unfinished ones included.
        beside: names and checksums of the model's integer tensors.
        unnoised: steps of an ordinary optimizer on the same model, after the first of them.
        start: checksum of the model before the first step, and of its parts that no step changes.
        few: whether these have few different numbers, since such releases repeat by chance.
    """

    steps: tuple[Step, ...] = ()
    statement: Statement | None = None
    size: int = 0
    records: tuple[str, ...] = ()
    computed: str = ""
    explained: bool = True
    epochs: int = 0
    beside: tuple[tuple[str, str], ...] = ()
    unnoised: int = 0
    start: str = ""
    released: str = ""
    few: bool = False


@dataclass(frozen=True)
class Influence:
    """What replaced records changed in the steps of otherwise equal runs.

    Attributes:
        moved: largest change of a step's clipped sum by one record, in clipping norms.
        gradients: largest number of gradients that one record changed in one step.
        strays: largest number of gradients of a step that changed, less that of its changed items.
        elsewhere: largest number of gradients of a step that changed though their item did not.
        copies: largest number of the loader's items that one record is known to change.
    """

    moved: float = 0.0
    gradients: int = 0
    places: int = 0
    halves: int = 0
    strays: int = 0
    elsewhere: int = 0
    copies: int = 0
    unseen: str = ""


@dataclass(frozen=True, eq=False)
class Observation:
    """Honest runs of a training, in both worlds where an auditor runs it.

    Attributes:
        present: runs with the target, one for each seed; the other runs have the first seeds.
        twin: runs with another record in its place.
        records: number of records in D.
        recorded: whether a recorder saw the one run, so that rules on runs do not apply.
        shown: least noise multiplier of each recorded step, as measured.
        stranger: runs with other features of all records.
        more: noise of all further runs, each with its own seed.
        varies: whether any two of these, in one world, released different numbers.
        changed: names of tensors that depend on the data while every released step stays the same;
            None where a replay cannot tell.
        echo: p-value of the repetition of noise in the runs with the target.
    """

    present: tuple[ObservedRun, ...]
    absent: tuple[ObservedRun, ...] = ()
    twin: tuple[ObservedRun, ...] = ()
    records: int = 0
    neighbouring: Neighbouring = Neighbouring.ADD_REMOVE
    recorded: bool = False
    shown: tuple[float, ...] | None = None
    stranger: tuple[ObservedRun, ...] = ()
    more: NoiseSums = NOTHING
    varies: bool = False
    changed: tuple[str, ...] | None = ()
    influence: Influence = field(default_factory=Influence)
    echo: float = 1.0

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.present[0].steps

    @cached_property
    def all_steps(self) -> list[Step]:
        """Steps of all runs with the target."""
        return [step for run in self.present for step in run.steps]

    @property
    def runs(self) -> tuple[ObservedRun, ...]:
        return (*self.present, *self.absent, *self.twin, *self.stranger)

    # Noise

    @cached_property
    def seeded(self) -> bool:
        """Whether runs with different seeds released the same, or noise was used again."""
        outputs = [run.released for run in self.present if not run.few]
        noises = [
            tuple(round(each / step.std, 3) for each in step.noise)
            for step in self.all_steps
            # Missing noise has its own finding.
            if step.std and len(step.noise) == SHOWN and any(step.noise)
        ]
        repeats = any(len(set(each)) < len(each) for each in (outputs, noises))
        # A mechanism with few possible outputs repeats them by chance, but not always the same.
        alike = {run.released for run in self.present}
        repeats |= len(self.present) > 1 and len(alike) == 1 and not self.varies
        return repeats or self.echo < ALPHA

    @property
    def independent(self) -> tuple[ObservedRun, ...]:
        """Runs with the target that statistics may count as independent."""
        return self.present[:1] if self.seeded else self.present

    @cached_property
    def noise(self) -> NoiseSums:
        runs = total(summed(run.steps) for run in self.independent)
        return runs if self.seeded else runs + self.more

    @cached_property
    def noise_ratios(self) -> dict[str, Interval]:
        """Realised over configured noise by part, all together with ALARM_CONFIDENCE.

        The squared length of the noise is chi-square. The parts are all steps of all runs, each
        tensor of the model in all of them, and each step of the honest runs.
        """
        if not self.noise.steps:
            return {}
        tensors = self.noise.filled
        ratios = {f"in the model{OVERALL}": self.noise.whole.interval(NOISE_TAIL)}
        for place, each in enumerate(tensors, 1):
            name = f"in tensor {place} of the model's {len(tensors)}{OVERALL}"
            ratios[name] = each.interval(NOISE_TAIL / len(tensors))
        runs = [each.steps for each in self.independent]
        if len({len(each) for each in runs}) == 1:
            for place, together in enumerate(zip(*runs, strict=True), 1):
                part = summed(together)
                if part.steps:
                    ratios[f"in step {place}"] = part.whole.interval(NOISE_TAIL / len(runs[0]))
        return ratios

    @property
    def noise_off(self) -> tuple[str, Interval] | None:
        """The part with the least noise below the configured, and its interval; None without one.

        A single step counts only where the steps do not share one scale.
        """
        least = 1 - TOLERANCE
        off = [(where, each) for where, each in self.noise_ratios.items() if each.high < least]
        whole = [each for each in off if each[0].endswith(OVERALL)]
        chosen = whole if whole and self.one_scale else off
        return min(chosen, key=lambda each: each[1].high, default=None)

    @cached_property
    def one_scale(self) -> bool:
        """Whether the noise may be Gaussian with one scale of the configured noise in all steps."""
        return shape_p_value(self.noise) >= ALPHA

    # Dependence on the data

    @property
    def explained(self) -> bool:
        """Whether the observed steps alone read the data, as far as the runs show."""
        others = (self.twin, self.stranger)
        pairs = [pair for other in others for pair in zip(self.present, other, strict=False)]
        alone = self.changed == () and all(each.explained for each in self.runs)
        return alone and all(a.start == b.start for a, b in pairs) and not self.beside

    @cached_property
    def beside(self) -> tuple[str, ...]:
        """Names of integer tensors that differ between honest runs.

        One that is the same in all runs, such as a number of steps, reveals no record.
        """
        pairs = Counter(pair for run in self.runs for pair in set(run.beside))
        return tuple(sorted({name for (name, _), times in pairs.items() if times < len(self.runs)}))

    @cached_property
    def divides_by_batch(self) -> bool:
        return any(sampling.divides_by_batch(run.steps) for run in self.present)

    @property
    def unlike(self) -> tuple[str, ...]:
        """Parts of the mechanism that differ between the worlds, in words."""
        if self.divides_by_batch:
            return ()
        differing = []
        for part in _parts(self.present[0]):
            with_it, without = (
                {_rounded(value) for run in runs for value in _parts(run)[part]}
                for runs in (self.present, self.absent)
            )
            # Chance may separate two runs, but dependence on the data separates all of them.
            if with_it and without and not with_it & without:
                ends = f"{min(with_it):g} with the target, {min(without):g} without it"
                differing.append(f"the {part} is {ends}")
        return tuple(differing)

    @property
    def varied(self) -> tuple[str, ...]:
        """Settings of a step that differ between runs; a mechanism may vary them between steps."""
        together = list(zip(*(run.steps for run in self.runs), strict=False))
        return tuple(
            name.replace("_", " ")
            for name in ("clipping_norm", "noise_multiplier")
            if any(len({_rounded(getattr(each, name)) for each in steps}) > 1 for steps in together)
        )

    @property
    def kept_by_chance(self) -> bool:
        """Whether the loop trains on another number of records in each run."""
        return len({run.size for run in self.present}) > 1

    @cached_property
    def sampled(self) -> list[Step]:
        """Independent steps, at the rate of which the batches must be Poisson samples.

        It is the accountant's rate. Where the sampler's own rate is lower, it is tested instead,
        and the accountant's rate holds too. A loop may keep some of the data for another purpose.
        """
        steps = [step for run in self.independent for step in run.steps]
        if self.recorded:
            return steps
        size = self.present[0].size
        rates = [min(step.charged_rate or 1.0, step.sample_rate or 1.0) for step in steps]
        pairs = zip(steps, rates, strict=True)
        return [replace(step, sample_rate=rate, records=size) for step, rate in pairs]

    # How far one record moves a step

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

    @property
    def moved(self) -> float:
        """How far one record moves a step, as a multiple of what its one clipped term allows.

        It is at least 1. A replaced record moves the sum by at most two clipping norms, so that a
        larger change is that of several terms, each of which the noise must hide.
        """
        farthest = self.influence.moved
        return farthest / 2 if farthest > FARTHEST and self._comparable else 1.0

    @property
    def strays(self) -> int:
        """Number of gradients of a step that changed, less that of the replaced records in it."""
        return self.influence.strays if self._comparable else 0

    @property
    def entangled(self) -> bool:
        """Whether one record is in more than its one clipped gradient."""
        several = self._comparable and self.influence.gradients > 1
        return self.moved > 1 or several or self.strays > 0

    @cached_property
    def _comparable(self) -> bool:
        """Whether nothing that has its own finding changes the steps of all records."""
        steps = self.all_steps
        wrong = any(not step.clipped or step.adaptive or step.repeated > 1 for step in steps)
        wrong |= self.displaced > 1 or self.present[0].unnoised > 0
        return not (wrong or self.changed or self.varied)


def _parts(run: ObservedRun) -> dict[str, set[float]]:
    """Return the parts of a run's mechanism that must not depend on the data."""
    return {
        "number of steps": {float(len(run.steps))} if run.steps else set(),
        "divisor": {step.divisor for step in run.steps},
        "accounted sampling rate": {step.charged_rate for step in run.steps},
    }


def _rounded(value: float | None) -> float:
    """Return a number measured in float32, without its rounding."""
    return float(f"{value or 0.0:.5g}")
