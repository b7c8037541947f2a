"""Checks of a training loop's batches, divisor and accountant, for any noise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import bdtrc

from adversaries.arrays import Floats
from adversaries.attacks import residuals
from adversaries.attacks.residuals import SamplingTest
from adversaries.statistics.intervals import ALARM_CONFIDENCE, binomial_low
from fedsim.audits.judgement.claim import Finding
from fedsim.audits.recorded.recorded_noise import RecordedStep
from fedsim.audits.recorded.recorded_report import Sampling
from fedsim.audits.recorded.transcript_release import EXCESS

TAIL = 1 - ALARM_CONFIDENCE
MOST_SIZES = 33
"""Number of data set sizes that are tried where none was recorded, of all possible ones."""

LONG_SUM = (
    "the clipped sum is up to {:.4g} times as long as the sum of {} clipped gradients can be. "
    "Gradients are clipped to more than the norm that scales the noise, or each part of the "
    "model is clipped by itself"
)
UNCLIPPED = (
    "in {} of {} steps the noised sum is not the sum of each record's clipped gradient: a record's "
    "contribution may exceed the norm that scales the noise"
)
OWN_SIZE = (
    "the divisor is the size of the drawn batch, which depends on the records. Neighbours then "
    "also differ in the scale of sum and noise, which no accountant here covers; divide by the "
    "expected size"
)
NEIGHBOUR = (
    "the divisor is {:g}, but {:g} with one record fewer, so that the scale of the noise tells the "
    "two apart. No epsilon here covers that. If the size of the data set is public (a record is "
    "replaced by one that adds nothing), record with size_public=True"
)
NOT_POISSON = (
    "the accountant assumes that every record joins a batch independently with probability {:g}, "
    "but batches come from {}. Its amplification by sampling is not proven"
)
SIZES = (
    "the sizes of the batches contradict Poisson sampling at {0:.4g} (p = {3:.2g}). Their mean is "
    "that of rate {1:.4g}, and their variance {2:.3g} times that of Poisson sampling. "
    "Amplification by sampling is not proven"
)
FAVOURED = (
    "a record was in {} of {} batches, too many for a sampling rate of {:.4g}: its rate is at "
    "least {:.3g} (99.99 % confidence, for all records together)"
)
TWICE = "a record was twice in one step, and may change the sum by twice the clipping norm"
ACCUMULATED = (
    "one step combines {} batches, and a record may be in several of them. The accountant's rate "
    "is for one batch, so that its amplification is not proven"
)
UNTESTED = (
    "the audit cannot tell whether batches are Poisson samples: their sizes were not recorded, or "
    "too few were recorded to exclude one fixed size; record more steps, or call the recorder on "
    "the Opacus engine before make_private"
)
UNDERCHARGED = "the accountant recorded a noise multiplier of {:.4g}, but the release had {:.4g}{}"
UNCOUNTED = (
    "the accountant counts {} of {} steps: it was restarted ({} engines), and its last answer "
    "covers only the last engine; this audit composes all steps"
)
OWN_COUNT = (
    "adaptive clipping divides its noisy count by the size of the drawn batch, which is released "
    "without noise; no epsilon here covers that"
)


@dataclass(frozen=True)
class Checked:
    """The result of the checks.

    Attributes:
        amplified: whether batches are declared Poisson samples, and no check contradicts it.
        unsure: why no check could have contradicted it, "" where one could.
        sampling: rate, dispersion and p-value of the batches' sizes; None where not tested.
        taken: records of each step; None where some step does not state them.
        favoured_rate: least sampling rate of a record that is surely favoured; 0 without one.
        divisor_changes: whether a step's divisor would change with one record fewer.
    """

    findings: list[Finding] = field(default_factory=list)
    amplified: bool = False
    unsure: str = ""
    sampling: Sampling | None = None
    taken: tuple[tuple[int, ...], ...] | None = None
    favoured_rate: float = 0.0
    divisor_changes: bool = False

    def most_mu(self, steps: Sequence[RecordedStep], multipliers: Sequence[float]) -> float:
        """Return the signal-to-noise ratio of the record that took part most, over all steps."""
        if 0.0 in multipliers:
            return math.inf
        if self.taken is None:
            # Unknown batches: any record may have been in all of them.
            pairs = zip(steps, multipliers, strict=True)
            return math.sqrt(sum((step.accumulated / z) ** 2 for step, z in pairs))
        squares: dict[int, float] = {}
        for members, z in zip(self.taken, multipliers, strict=True):
            # A record that is several times in a batch changes the sum by as many clipping norms.
            for member, times in zip(*np.unique(members, return_counts=True), strict=True):
                squares[int(member)] = squares.get(int(member), 0.0) + (int(times) / z) ** 2
        return math.sqrt(max(squares.values(), default=0.0))

    def least_mu(self, multipliers: Sequence[float]) -> float:
        """Return a ratio that every record surely has: that of the sum of all steps."""
        if self.taken is None:
            return 0.0
        everyone = np.concatenate([np.asarray(members, int) for members in self.taken])
        _, counts = np.unique(everyone, return_counts=True)
        # If some records took part more often by chance, they may do so less another time.
        alike = counts.size > 0 and counts.min() == counts.max()
        # The sum of all steps moves by count * C, in noise of variance sum z^2 C^2.
        return int(counts[0]) / math.sqrt(sum(z**2 for z in multipliers)) if alike else 0.0


def checked(steps: Sequence[RecordedStep]) -> Checked:
    if not steps:
        return Checked()
    taken = tuple(step.members for step in steps if step.members is not None)
    members = taken if len(taken) == len(steps) else None
    sampling, wrong = _sampling(steps)
    favoured, more = _members(steps, members)
    wrong += more
    # Without a rate nothing amplifies; with one, every fault of batches speaks against it.
    amplified = all(step.sample_rate for step in steps) and not wrong
    unsure = UNTESTED if amplified and not _tested(steps) else ""
    cautions = [Finding(unsure, severity="caution")] if unsure else []
    findings = [*wrong, *cautions, *_sums(steps), *_divisors(steps), *_accountants(steps)]
    changes = _changing(steps) is not None
    return Checked(findings, amplified, unsure, sampling, members, favoured, changes)


def _sampling(steps: Sequence[RecordedStep]) -> tuple[Sampling | None, list[Finding]]:
    findings = []
    charged = next((step for step in steps if step.sampling not in ("", "poisson")), None)
    if charged is not None and charged.charged and charged.charged.sample_rate < 1:
        text = NOT_POISSON.format(charged.charged.sample_rate, charged.sampling)
        findings.append(Finding(text, severity="caution"))
    most = max(step.accumulated for step in steps)
    if most > 1:
        findings.append(Finding(ACCUMULATED.format(most), severity="caution"))
    kinds = _sizes(steps)
    worst: Sampling | None = None
    for (rate, records), listed in kinds.items():
        tests = _tests(np.array(listed, float), _possible(steps, rate, records), rate)
        if not tests:
            continue
        # For an unknown number of records, the one that fits best counts (in the loop's favour).
        test = max(tests, key=lambda one: one.p_value)
        p_value = min(1.0, test.p_value * len(kinds))
        if worst is None or p_value < worst.p_value:
            worst = Sampling(test.rate, rate, test.dispersion, p_value)
    if worst is not None and worst.p_value < TAIL:
        text = SIZES.format(worst.declared, worst.rate, worst.dispersion, worst.p_value)
        findings.append(Finding(text))
    return worst, findings


def _sizes(steps: Sequence[RecordedStep]) -> dict[tuple[float, int | None], list[int]]:
    """Return the sizes of single batches that are declared Poisson samples, by q and N."""
    kinds: dict[tuple[float, int | None], list[int]] = {}
    for step in steps:
        rate = step.sample_rate
        if rate is not None and rate < 1 and step.batch is not None and step.accumulated == 1:
            kinds.setdefault((rate, step.records), []).append(step.batch)
    return kinds


def _tests(sizes: Floats, possible: Sequence[int], rate: float) -> list[SamplingTest]:
    return [
        residuals.sampling_test(sizes, records, rate)
        for records in possible
        if sizes.max() <= records
    ]


def _tested(steps: Sequence[RecordedStep]) -> bool:
    """Return whether the sampling is known: recorded, or batches of one size would have shown."""
    sampled = [step for step in steps if (step.sample_rate or 1.0) < 1]
    if all(step.sampling == "poisson" for step in sampled):
        return True
    kinds = _sizes(sampled)
    if sum(map(len, kinds.values())) < len(sampled):
        return False
    for (rate, records), listed in kinds.items():
        possible = _possible(steps, rate, records)
        if not possible:
            return False
        alike = np.full(len(listed), round(possible[0] * rate), float)
        if max(test.p_value for test in _tests(alike, possible[:1], rate)) >= TAIL:
            return False
    return True


def _possible(steps: Sequence[RecordedStep], rate: float, records: int | None) -> list[int]:
    """Return the size of the data set, or those that the batch's expected size allows.

    Opacus rounds the expected size N q down. Without an expected size the list is empty.
    """
    if records:
        return [records]
    expected = steps[0].expected
    if not expected:
        return []
    least = max(1, math.ceil(expected / rate))
    most = max(least, math.ceil((expected + 1) / rate))
    return sorted({int(size) for size in np.linspace(least, most, MOST_SIZES)})


def _members(
    steps: Sequence[RecordedStep], taken: tuple[tuple[int, ...], ...] | None
) -> tuple[float, list[Finding]]:
    if taken is None:
        return 0.0, []
    findings = []
    if any(len(set(members)) < len(members) for members in taken):
        findings.append(Finding(TWICE))
    rates = {
        step.sample_rate or (step.charged.sample_rate if step.charged else 1.0) for step in steps
    }
    together = np.concatenate([np.unique(np.asarray(members, int)) for members in taken])
    if len(rates) > 1 or not together.size or max(rates) >= 1:
        return 0.0, findings
    rate, most = rates.pop(), int(np.bincount(together).max())
    records = steps[0].records or int(together.max()) + 1
    # Any record may be the favoured one: a union bound over all of them.
    if records * float(bdtrc(most - 1, len(steps), rate)) >= TAIL:
        return 0.0, findings
    low = float(binomial_low(most, len(steps), TAIL / records))
    findings.append(Finding(FAVOURED.format(most, len(steps), rate, low)))
    return low, findings


def _sums(steps: Sequence[RecordedStep]) -> list[Finding]:
    unclipped = sum(step.clipped is False for step in steps)
    findings = [Finding(UNCLIPPED.format(unclipped, len(steps)))] if unclipped else []
    longest = max(
        (
            (step.sum_length / (step.batch * step.clipping_norm), step.batch)
            for step in steps
            if step.sum_length and step.batch and step.clipping_norm
        ),
        default=(0.0, 0),
    )
    if longest[0] <= 1 + EXCESS:
        return findings
    return [*findings, Finding(LONG_SUM.format(*longest))]


def _changing(steps: Sequence[RecordedStep]) -> RecordedStep | None:
    """Return the first step whose divisor would change with one record fewer."""
    return next(
        (step for step in steps if step.neighbour_divisor not in (None, step.divisor)), None
    )


def _divisors(steps: Sequence[RecordedStep]) -> list[Finding]:
    findings = []
    if step := _changing(steps):
        findings.append(Finding(NEIGHBOUR.format(step.divisor, step.neighbour_divisor)))
    own = [step for step in steps if step.batch]
    if len({step.batch for step in own}) > 1 and all(step.divisor == step.batch for step in own):
        findings.append(Finding(OWN_SIZE))
    if any(step.count_std is not None for step in steps):
        findings.append(Finding(OWN_COUNT, severity="caution"))
    return findings


def _accountants(steps: Sequence[RecordedStep]) -> list[Finding]:
    findings = []
    for step in steps:
        if step.charged is None or step.noise_multiplier is None:
            continue
        # Sum and count are one release, whose squared signal-to-noise ratios add up.
        inverse = step.noise_multiplier**-2 if step.noise_multiplier else math.inf
        if step.count_std:
            inverse += step.count_std**-2
        real = inverse**-0.5
        if step.charged.noise_multiplier > real * (1 + EXCESS):
            why = ", including the noisy count of clipped gradients" if step.count_std else ""
            text = UNDERCHARGED.format(step.charged.noise_multiplier, real, why)
            findings.append(Finding(text))
            break
    last = steps[-1].charged
    if last is not None and last.steps < len(steps):
        engines = len({step.engine for step in steps})
        findings.append(
            Finding(UNCOUNTED.format(last.steps, len(steps), engines), severity="caution")
        )
    return findings
