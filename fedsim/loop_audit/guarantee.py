"""What is known of a loop from watched runs, and what theory makes of it.

Batches that are cut from shuffled records have no amplification by sampling. Take the target out of
a shuffle, and a record of the last batch moves into its place: two batches change, one by two
clipped gradients and one by one, so that an epoch is private as a Gaussian release of sqrt(5) times
the clipping norm; under replacement, of 2 times it. That bound holds, and is no calibration.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom, chi2

from adversaries.attacks.residuals import sampling_test
from adversaries.statistics import gaussian
from adversaries.statistics.intervals import ALARM_CONFIDENCE, Interval
from fedsim.loop_audit.measurement import Seen, StepSeen
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism, Neighbouring, Steps, sensitivity

ALPHA = 1 - ALARM_CONFIDENCE


@dataclass(frozen=True)
class Observation:
    """Honest runs of a loop in both worlds.

    Attributes:
        present: with the target, one a seed.
        absent: without it, of the first seeds.
        twin: with another record in its place, likewise.
        records: n, of D.
        neighbouring: how D' differs.
    """

    present: tuple[Seen, ...]
    absent: tuple[Seen, ...]
    twin: tuple[Seen, ...]
    records: int
    neighbouring: Neighbouring

    @property
    def steps(self) -> tuple[StepSeen, ...]:
        """Those of the first run with the target."""
        return self.present[0].steps

    @property
    def seeded(self) -> bool:
        """Whether runs of different seeds released the same."""
        return len({each.released for each in self.present}) < len(self.present)

    @property
    def explained(self) -> bool:
        """Whether watched steps are all that reads the data, as far as runs show."""
        runs = (*self.present, *self.absent, *self.twin)
        starts = [each.start == other.start for each, other in self._same_seed]
        return all(each.explained for each in runs) and all(starts)

    @property
    def _same_seed(self) -> list[tuple[Seen, Seen]]:
        return list(zip(self.present, self.twin, strict=False))

    @property
    def unlike(self) -> tuple[str, ...]:
        """What of the mechanism itself differs between the worlds, in words."""
        return _unlike(self.present[0], self.absent[0])

    @property
    def noise_ratios(self) -> tuple[Interval, ...]:
        """Realised over configured noise of every step, all runs; together with ALARM_CONFIDENCE.

        By the chi-square distribution of its squared length.
        """
        runs = [each.steps for each in self.present]
        if not runs[0] or len({len(each) for each in runs}) > 1:
            return ()
        found, tail = [], ALPHA / 2 / len(runs[0])
        for together in zip(*runs, strict=True):
            stds = [each.noise_multiplier * each.noise_norm for each in together]
            if not all(stds):
                return ()
            energy = sum(e.noise_energy / std**2 for e, std in zip(together, stds, strict=True))
            freedom = sum(each.coordinates for each in together)
            low, high = np.sqrt(energy / chi2.ppf([1 - tail, tail], freedom))
            found.append(Interval(float(low), float(high), ALARM_CONFIDENCE))
        return tuple(found)

    @property
    def noise_off(self) -> Interval | None:
        """The interval of the step whose noise is farthest from the configured, None if none is."""
        off = [each for each in self.noise_ratios if not each.low <= 1 <= each.high]
        return max(off, key=lambda each: abs(math.log(each.low * each.high)), default=None)

    def batches(self) -> dict[str, str]:
        """Return what the batches contradict of Poisson sampling at the accountants' rate.

        Exact tests, together with `ALARM_CONFIDENCE`: of the batches' sizes, of the rate, and of
        every record's count. Records of a batch more than once need no test.

        Returns:
            What is wrong, in words, by "repeats", "sizes", "rates".
        """
        steps = [step for run in self.present for step in run.steps if step.told]
        rates = {step.told_rate for step in steps}
        if not steps or len(rates) > 1 or min(step.records for step in steps) < 0:
            return {}
        found, rate = {}, rates.pop()
        repeated = max(step.repeated for step in steps)
        if repeated > 1:
            found["repeats"] = f"a record was in one batch {repeated} times"
        if not 0 < rate < 1:
            return found
        sizes = np.array([float(step.records) for step in steps])
        test = sampling_test(sizes, self.records, rate)
        if test.p_value < ALPHA / 2:
            found["sizes"] = (
                f"{len(steps)} batches have {test.rate:.3g} of the records each and "
                f"{test.dispersion:.2g} of the variance that coins of {rate:.3g} give them "
                f"(p = {test.p_value:.1g})"
            )
        counts = np.sum([run.counts for run in self.present], axis=0)
        most = int(counts.max())
        chance = self.records * float(binom.sf(most - 1, len(steps), rate))
        if chance < ALPHA / 2:
            found["rates"] = (
                f"a record was drawn {most} times in {len(steps)} batches, where coins of "
                f"{rate:.3g} give {rate * len(steps):.3g} (p = {chance:.1g})"
            )
        return found


def _unlike(with_it: Seen, without: Seen) -> tuple[str, ...]:
    found = []
    here, there = with_it.steps, without.steps
    if len(here) != len(there):
        found.append(f"{len(here)} steps with the target, {len(there)} without it")
    for name, value in (("divisor", "divisor"), ("rate that is accounted for", "told_rate")):
        pair = [{round(getattr(step, value), 6) for step in run} for run in (here, there) if run]
        if len(pair) == 2 and pair[0] != pair[1]:
            ends = [f"{min(each):g}" for each in pair]
            found.append(f"the {name} is {ends[0]} with the target, {ends[1]} without it")
    return tuple(found)


def multiplier(step: StepSeen, observation: Observation) -> float:
    """Return the true noise multiplier of a step, by what was measured where that differs.

    Args:
        step: of a run.
        observation: whose noise was measured.
    """
    off = observation.noise_off
    share = 1.0 if off is None else min(1.0, math.sqrt(off.low * off.high))
    limit = sensitivity(observation.neighbouring, step.sensitivity)
    return share * step.noise_multiplier * step.noise_norm / limit


def epsilon(observation: Observation, delta: float) -> float | None:
    """Return epsilon of all steps by theory, None where theory does not know the loop.

    Args:
        observation: of honest runs.
        delta: in (0, 1).
    """
    steps, kind = observation.steps, observation.present[0].sampler
    wrong = any(step.clipped is not True or step.adaptive for step in steps)
    if not observation.explained or wrong or observation.unlike or observation.seeded:
        return None
    multipliers = [multiplier(step, observation) for step in steps]
    if min(multipliers) < 1e-6:
        return math.inf
    broken = set(observation.batches())
    if kind == "poisson" and not broken:
        rate = observation.present[0].rate
        parts = tuple(Steps(z, 1, rate) for z in multipliers)
        return PLD.epsilon(Mechanism(parts, observation.neighbouring), delta)
    if kind in ("shuffled", "in order") and all(s.records == observation.records for s in steps):
        parts = tuple(Steps(z) for z in multipliers)
        return PLD.epsilon(Mechanism(parts, observation.neighbouring), delta)
    if kind == "shuffled" and "repeats" not in broken:
        epochs = max(observation.present[0].counts)
        # Under replacement the multiplier counts on twice the clipping norm already.
        apart = math.sqrt(5) if observation.neighbouring is Neighbouring.ADD_REMOVE else 1.0
        return gaussian.epsilon(apart * math.sqrt(epochs) / min(multipliers), delta)
    return None
