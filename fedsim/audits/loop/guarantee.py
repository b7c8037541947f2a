"""What is known of a loop from watched runs, and what theory makes of it.

Batches that are cut from shuffled records have no amplification by sampling. Take the target out of
a shuffle, and a record of the last batch moves into its place: two batches change, one by two
clipped gradients and one by one, so that an epoch is private as a Gaussian release of sqrt(5) times
the clipping norm; under replacement, of 2 times it. That bound holds, and is no calibration.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.stats import binom

from adversaries.attacks.residuals import sampling_test
from adversaries.statistics import gaussian
from adversaries.statistics.intervals import ALARM_CONFIDENCE, Interval
from fedsim.audits.loop import noise
from fedsim.audits.loop.contract import UNREAD
from fedsim.audits.loop.measurement import SHOWN, Seen, StepSeen
from fedsim.audits.loop.noise import NOTHING, NoiseSums
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism, Neighbouring, Steps, sensitivity

ALPHA = 1 - ALARM_CONFIDENCE

NOISE_TAIL = ALPHA / 6
"""Of either end of the noise's intervals: a third of ALPHA is for all steps together, one for the
tensors of the model, one for the steps by themselves."""

OVERALL = ", over all steps,"

LEAST_NOISE = 1e-6
"""The noise multiplier below which there is no privacy to speak of."""


@dataclass(frozen=True)
class Observation:
    """Honest runs of a loop in both worlds.

    Attributes:
        present: with the target, one a seed.
        absent: without it, of the first seeds.
        twin: with another record in its place, of the first seeds.
        stranger: with other features of all records, of the first seeds.
        records: n, of D.
        neighbouring: how D' differs.
        more: the noise of all further runs, each of a seed of its own.
        varies: whether any two of these, in one world, released something else.
        changed: tensors that follow the data while every released step stays the same, by their
            names; None where a replay cannot tell.
    """

    present: tuple[Seen, ...]
    absent: tuple[Seen, ...]
    twin: tuple[Seen, ...]
    records: int
    neighbouring: Neighbouring
    stranger: tuple[Seen, ...] = ()
    more: NoiseSums = NOTHING
    varies: bool = False
    changed: tuple[str, ...] | None = ()

    @property
    def steps(self) -> tuple[StepSeen, ...]:
        """Those of the first run with the target."""
        return self.present[0].steps

    @cached_property
    def seeded(self) -> bool:
        """Whether runs of different seeds released the same, or two steps have the same noise."""
        outputs, runs = {each.released for each in self.present}, len(self.present)
        if len(outputs) < runs:
            # A mechanism with few possible outputs repeats them by chance, and not always one.
            many = all(run.values >= SHOWN for run in self.present)
            if many or (len(outputs) == 1 and not self.varies):
                return True
        noises = [
            tuple(round(each / std, 3) for each in step.noise)
            for run in self.present
            for step in run.steps
            if (std := step.noise_multiplier * step.noise_norm) and len(step.noise) == SHOWN
        ]
        return len(set(noises)) < len(noises)

    @property
    def independent(self) -> tuple[Seen, ...]:
        """The runs with the target that statistics may count."""
        return self.present[:1] if self.seeded else self.present

    @property
    def varied(self) -> tuple[str, ...]:
        """What of a step is set to something else in other runs, in words."""
        steps = list(zip(*(each.steps for each in self.runs), strict=False))
        return tuple(
            what
            for what, value in SETTINGS.items()
            if any(len({_rounded(value(step)) for step in together}) > 1 for together in steps)
        )

    @property
    def explained(self) -> bool:
        """Whether watched steps are all that reads the data, as far as runs show."""
        others = (self.twin, self.stranger)
        pairs = [pair for other in others for pair in zip(self.present, other, strict=False)]
        starts = [each.start == other.start for each, other in pairs]
        alone = self.changed == () and all(each.explained for each in self.runs)
        return alone and all(starts) and not self.beside

    @property
    def runs(self) -> tuple[Seen, ...]:
        return (*self.present, *self.absent, *self.twin, *self.stranger)

    @cached_property
    def beside(self) -> tuple[str, ...]:
        """What a model carries beside its weights that differs between honest runs, or is unread.

        What is the same in all of them, such as the width of a layer, tells of no record.
        """
        pairs = Counter(pair for run in self.runs for pair in set(run.beside))
        wrong = {
            name
            for (name, checksum), times in pairs.items()
            if checksum == UNREAD or times < len(self.runs)
        }
        return tuple(sorted(wrong))

    @property
    def unlike(self) -> tuple[str, ...]:
        """What of the mechanism itself differs between the worlds, in words."""
        if any(_by_batch(each.steps) for each in self.present):
            return ("the divisor is the size of the batch that was drawn",)
        found = []
        for what, values in VALUES.items():
            with_it, without = (
                {value for each in runs for value in values(each)}
                for runs in (self.present, self.absent)
            )
            # Chance may make a run unlike another; what depends on the data parts them all.
            if with_it and without and not with_it & without:
                ends = f"{min(with_it):g} with the target, {min(without):g} without it"
                found.append(f"the {what} is {ends}")
        return tuple(found)

    @cached_property
    def noise(self) -> NoiseSums:
        """The noise of all runs that statistics may count, of every step."""
        runs = noise.total(noise.summed(run.steps) for run in self.independent)
        return runs if self.seeded else runs + self.more

    @cached_property
    def noise_ratios(self) -> dict[str, Interval]:
        """Realised over configured noise, together with ALARM_CONFIDENCE, by what it is of.

        By the chi-square distribution of its squared length: of all steps of all runs, of each
        tensor of the model in all of them, and of every step of the honest runs.
        """
        whole = self.noise
        if not whole.steps:
            return {}
        every = sum(whole.energies), whole.freedom
        found = {f"in the model{OVERALL}": noise.interval(*every, NOISE_TAIL)}
        tensors = noise.of_tensors(whole)
        for place, each in enumerate(tensors):
            name = f"in tensor {place + 1} of the model's {len(tensors)}{OVERALL}"
            found[name] = noise.interval(*each, NOISE_TAIL / len(tensors))
        runs = [each.steps for each in self.independent]
        if len({len(each) for each in runs}) > 1:
            return found
        for place, together in enumerate(zip(*runs, strict=True)):
            part = noise.summed(together)
            if part.steps:
                of_step = sum(part.energies), part.freedom, NOISE_TAIL / len(runs[0])
                found[f"in step {place + 1}"] = noise.interval(*of_step)
        return found

    @property
    def noise_off(self) -> tuple[str, Interval] | None:
        """Where noise is less than configured, and its interval; None where nothing shows that.

        What is farthest below; a single step only where the steps are not of one scale.
        """
        off = [
            (where, each)
            for where, each in self.noise_ratios.items()
            if each.high < 1 - noise.TOLERANCE
        ]
        whole = [each for each in off if each[0].endswith(OVERALL)]
        chosen = whole if whole and self.one_scale else off
        return min(chosen, key=lambda each: each[1].high, default=None)

    @cached_property
    def one_scale(self) -> bool:
        """Whether the noise may be Gaussian, with one scale of the configured in all steps."""
        return noise.shape_p_value(self.noise) >= ALPHA

    def batches(self) -> dict[str, str]:
        """Return what the batches contradict of Poisson sampling at the accountants' rate.

        At the sampler's own rate, where that is lower: what was told holds all the more.
        Exact tests, together with `ALARM_CONFIDENCE`: of the batches' sizes, of the rate, and of
        every record's count. Records of a batch more than once need no test.

        Returns:
            What is wrong, in words, by "repeats", "sizes", "rates".
        """
        runs = self.independent
        steps = [step for run in runs for step in run.steps]
        if not steps or min(step.records for step in steps) < 0:
            return {}
        found = {}
        repeated = max(step.repeated for step in steps)
        if repeated > 1:
            found["repeats"] = f"a record was in one batch {repeated} times"
        # A loop may keep some of the data for something else.
        records = len(runs[0].counts)
        # What amplifies a step: its accountant's rate, or the sampler's if lower; 1 for neither.
        rates = [min(step.told_rate if step.told else 1.0, step.rate or 1.0) for step in steps]
        sampled = [(step, rate) for step, rate in zip(steps, rates, strict=True) if 0 < rate < 1]
        if not sampled or self.kept_by_chance:
            return found
        kinds = sorted({rate for _, rate in sampled})
        for rate in kinds:
            sizes = np.array([float(step.records) for step, each in sampled if each == rate])
            test = sampling_test(sizes, records, rate)
            if test.p_value < ALPHA / 2 / len(kinds):
                found["sizes"] = (
                    f"{len(sizes)} batches have {test.rate:.3g} of the records each and "
                    f"{test.dispersion:.2g} of the variance that coins of {rate:.3g} give them "
                    f"(p = {test.p_value:.1g})"
                )
        if len(sampled) < len(steps):  # counts are those of all steps together
            return found
        counts = np.sum([run.counts for run in runs], axis=0)
        most, mean = int(counts.max()), float(np.mean(rates))
        # Coins of several rates exceed their mean no more often than as many of the mean rate do
        # (Hoeffding, "On the distribution of the number of successes in independent trials", 1956).
        chance = records * float(binom.sf(most - 1, len(steps), mean))
        if most > mean * len(steps) + 1 and chance < ALPHA / 2:
            found["rates"] = (
                f"a record was drawn {most} times in {len(steps)} batches, where coins of "
                f"{mean:.3g} give {mean * len(steps):.3g} (p = {chance:.1g})"
            )
        return found

    @property
    def kept_by_chance(self) -> bool:
        """Whether the loop trained on another number of records in each run."""
        return len({len(run.counts) for run in self.present}) > 1

    @property
    def displaced(self) -> int:
        """How many of the loader's records differ where one of the data does: that one, if right.

        Where its data set makes its records, nobody can tell, and this is 0.
        """
        return max(
            (
                (Counter(with_it.records) - Counter(without.records)).total()
                for with_it, without in zip(self.present, self.twin, strict=False)
                if with_it.records and without.records
            ),
            default=0,
        )


def _by_batch(steps: tuple[StepSeen, ...]) -> bool:
    """Whether the divisor follows the size of the batch."""
    sizes = {step.records for step in steps}
    return len(sizes) > 1 and all(
        step.records > 0 and math.isclose(step.divisor, step.records, rel_tol=1e-5)
        for step in steps
    )


def _rounded(value: float) -> float:
    """Return a number that was measured in float32, without its rounding."""
    return float(f"{value:.5g}")


VALUES: dict[str, Callable[[Seen], set[float]]] = {
    "number of steps": lambda run: {float(len(run.steps))} if run.steps else set(),
    "divisor": lambda run: {_rounded(step.divisor) for step in run.steps},
    "rate that is accounted for": lambda run: {_rounded(step.told_rate) for step in run.steps},
}
"""What a mechanism must not take from the data, as it is seen in a run."""

SETTINGS: dict[str, Callable[[StepSeen], float]] = {
    "clipping norm": lambda step: step.noise_norm,
    "noise multiplier": lambda step: step.noise_multiplier,
}
"""What a mechanism may change from step to step, but not by what it saw."""


def multiplier(step: StepSeen, observation: Observation) -> float:
    """Return the noise multiplier that a step is configured to have, of its true sensitivity."""
    limit = sensitivity(observation.neighbouring, step.sensitivity)
    return step.noise_multiplier * step.noise_norm / limit


def mechanism(observation: Observation, scale: float = 1.0) -> Mechanism | None:
    """Return the Gaussian steps that a loop is, None where it is none that theory composes.

    Args:
        scale: of the noise, as a share of the configured.
    """
    multipliers = _multipliers(observation, scale)
    if multipliers is None or min(multipliers) < LEAST_NOISE:
        return None
    records = len(observation.present[0].counts)  # without those kept for something else
    tested = not observation.batches()
    parts = []
    for step, z in zip(observation.steps, multipliers, strict=True):
        full = step.records == records and step.repeated == 1
        if step.sampler == "poisson" and tested:
            parts.append(Steps(z, 1, step.rate))
        elif step.sampler in ("shuffled", "in order") and full:
            parts.append(Steps(z))
        else:
            return None
    return Mechanism(tuple(parts), observation.neighbouring)


def _multipliers(observation: Observation, scale: float) -> list[float] | None:
    """Return the noise multiplier of every step, None where steps are not all there is."""
    wrong = any(
        step.clipped is not True or step.adaptive
        for run in observation.present
        for step in run.steps
    )
    wrong |= bool(observation.unlike or observation.varied or observation.seeded)
    wrong |= observation.kept_by_chance or observation.displaced > 1
    if wrong or not observation.explained:
        return None
    return [scale * multiplier(step, observation) for step in observation.steps]


def epsilon(observation: Observation, delta: float, scale: float | None = None) -> float | None:
    """Return epsilon of all steps by theory, None where theory does not know the loop.

    Args:
        delta: in (0, 1).
        scale: of the noise, as a share of the configured; None for all of it, or for the least that
            was measured where that is less.
    """
    if scale is None:
        off = observation.noise_off
        scale = 1.0 if off is None else off[1].low
    multipliers = _multipliers(observation, scale)
    if multipliers is None:
        return None
    if min(multipliers) < LEAST_NOISE:
        return math.inf
    # Less noise than configured is measured by itself; noise of another shape is known by nobody.
    if not observation.one_scale and observation.noise_off is None:
        return None
    composed = mechanism(observation, scale)
    if composed is not None:
        return PLD.epsilon(composed, delta)
    shuffled = all(step.sampler == "shuffled" for step in observation.steps)
    if shuffled and "repeats" not in observation.batches():
        # A record may be in every pass that was begun, however few it was in by chance.
        epochs = max(run.epochs for run in observation.runs)
        # Under replacement the multiplier counts on twice the clipping norm already.
        apart = math.sqrt(5) if observation.neighbouring is Neighbouring.ADD_REMOVE else 1.0
        return gaussian.epsilon(apart * math.sqrt(epochs) / min(multipliers), delta)
    return None
