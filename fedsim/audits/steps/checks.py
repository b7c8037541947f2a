"""Checks of a training loop's batches, sums, divisor and accountant, for any noise."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import bdtrc

from adversaries.attacks import residuals
from adversaries.statistics.intervals import ALARM_CONFIDENCE, binomial_low
from fedsim.audits.judgement.claim import Finding
from fedsim.audits.steps.step import Sampling, Step
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism, Neighbouring, Steps

TAIL = 1 - ALARM_CONFIDENCE
EXCESS = 1e-3
"""Share by which a sum may exceed the clipping norm: gradients are clipped in single precision."""

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
SAMPLER = "leave poisson_sampling=True, or account for every step without amplification"
CLIP = "clip every record's gradient before summation, as Opacus's optimizer does"
EXPECTED = "divide by the expected size of a batch, fixed beforehand"
NORM = (
    "scale the noise with the clipping norm of the whole gradient: the square root of the sum of "
    "the layers' squared norms"
)
KEEP = "keep one PrivacyEngine, or load the accountant's state into the next one"
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
    "the audit cannot tell whether batches are Poisson samples: their sizes or the number of "
    "records were not recorded, or too few were recorded to exclude one fixed size; record more "
    "steps, or call the recorder on the Opacus engine before make_private"
)
UNDERCHARGED = "the accountant recorded a noise multiplier of {:.4g}, but the release had {:.4g}"
UNCOUNTED = (
    "the accountant counts {} of {} steps: it was restarted{}, and its last answer covers only the "
    "last engine; this audit composes all steps"
)


@dataclass(frozen=True)
class Checked:
    """The result of the checks.

    Attributes:
        amplified: whether batches are declared Poisson samples, and no check contradicts it.
        unsure: why no check could have contradicted it, "" where one could.
        divisor_changes: whether a step's divisor would, or may, change with one record fewer.
    """

    findings: list[Finding] = field(default_factory=list)
    amplified: bool = False
    unsure: str = ""
    sampling: Sampling | None = None
    taken: tuple[tuple[int, ...], ...] | None = None
    favoured_rate: float = 0.0
    divisor_changes: bool = False

    def most_mu(self, steps: Sequence[Step], multipliers: Sequence[float]) -> float:
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


def checked(steps: Sequence[Step]) -> Checked:
    if not steps:
        return Checked()
    taken = tuple(step.members for step in steps if step.members is not None)
    members = taken if len(taken) == len(steps) else None
    sampling, of_sizes = sizes(steps)
    favoured_rate, of_counts = favoured(steps)
    wrong = [*undeclared(steps), *of_sizes, *twice(steps), *of_counts]
    # Without a rate nothing amplifies; with one, every fault of batches speaks against it.
    amplified = all(step.sample_rate for step in steps) and not wrong
    unsure = UNTESTED if amplified and not _tested(steps) else ""
    cautions = [Finding(unsure, severity="caution")] if unsure else []
    rest = [*sums(steps), *divisors(steps), *undercharged(steps)]
    last = steps[-1].charged
    rest += [] if last is None else uncounted(steps, last.steps)
    changes = _changing(steps) is not None or divides_by_batch(steps)
    findings = [*wrong, *cautions, *rest]
    return Checked(findings, amplified, unsure, sampling, members, favoured_rate, changes)


def undeclared(steps: Sequence[Step]) -> list[Finding]:
    """Return the steps whose recorded sampling the accountant's rate is not for."""
    texts = []
    other = next((step for step in steps if step.sampling not in ("", "poisson")), None)
    if other is not None and 0 < other.charged_rate < 1:
        texts.append(NOT_POISSON.format(other.charged_rate, other.sampling))
    most = max(step.accumulated for step in steps)
    texts += [ACCUMULATED.format(most)] if most > 1 else []
    return [Finding(text, SAMPLER, "caution", "sampler") for text in texts]


def sizes(steps: Sequence[Step], tail: float = TAIL) -> tuple[Sampling | None, list[Finding]]:
    """Test the sizes of batches that are declared Poisson samples; `tail` of these are accused."""
    kinds, found = _sizes(steps), list[Sampling]()
    for (rate, records), listed in kinds.items():
        if max(listed) <= records:
            test = residuals.sampling_test(np.array(listed, float), records, rate)
            p_value = min(1.0, test.p_value * len(kinds))
            found.append(Sampling(test.rate, rate, test.dispersion, p_value))
    worst = min(found, key=lambda one: one.p_value, default=None)
    if worst is None or worst.p_value >= tail:
        return worst, []
    text = SIZES.format(worst.declared, worst.rate, worst.dispersion, worst.p_value)
    return worst, [Finding(text, SAMPLER, rule="sampler")]


def twice(steps: Sequence[Step]) -> list[Finding]:
    again = any(step.repeated > 1 for step in steps)
    return [Finding(TWICE, SAMPLER, rule="sampler")] if again else []


def favoured(steps: Sequence[Step], tail: float = TAIL) -> tuple[float, list[Finding]]:
    """Test how often the record took part that was drawn most; return its least rate.

    The rate is 0 without such a record, and where steps have several rates.
    """
    rates = [step.sample_rate or step.charged_rate or 1.0 for step in steps]
    taken = [np.unique(np.asarray(step.members, int)) for step in steps if step.members is not None]
    together = np.concatenate([*taken, np.zeros(0, int)])
    if len(taken) < len(steps) or not together.size or max(rates) >= 1:
        return 0.0, []
    # Coins of several rates exceed their mean no more often than coins of the mean rate
    # (Hoeffding, "On the distribution of the number of successes in independent trials", 1956).
    rate, most = float(np.mean(rates)), int(np.bincount(together).max())
    several = len(set(rates)) > 1
    records = steps[0].records or int(together.max()) + 1
    # Any record may be the favoured one: a union bound over all of them.
    chance = records * float(bdtrc(most - 1, len(steps), rate))
    if chance >= tail or (several and most <= rate * len(steps) + 1):
        return 0.0, []
    low = float(binomial_low(most, len(steps), tail / records))
    text = FAVOURED.format(most, len(steps), rate, low)
    finding = Finding(text, SAMPLER, rule="sampler")
    return 0.0 if several else low, [finding]


def _sizes(steps: Sequence[Step]) -> dict[tuple[float, int], list[int]]:
    """Return the sizes of single batches that are declared Poisson samples, by q and N."""
    kinds: dict[tuple[float, int], list[int]] = {}
    for step in steps:
        rate, single = step.sample_rate, step.accumulated == 1
        if rate is not None and rate < 1 and single and step.batch is not None and step.records:
            kinds.setdefault((rate, step.records), []).append(step.batch)
    return kinds


def _tested(steps: Sequence[Step]) -> bool:
    """Return whether the sampling is known: recorded, or batches of one size would have shown."""
    sampled = [step for step in steps if (step.sample_rate or 1.0) < 1]
    if all(step.sampling == "poisson" for step in sampled):
        return True
    kinds = _sizes(sampled)
    if sum(map(len, kinds.values())) < len(sampled):
        return False
    return all(
        residuals.sampling_test(
            np.full(len(listed), round(records * rate), float), records, rate
        ).p_value
        < TAIL
        for (rate, records), listed in kinds.items()
    )


def sums(steps: Sequence[Step]) -> list[Finding]:
    unclipped = sum(step.clipped is False for step in steps)
    text = UNCLIPPED.format(unclipped, len(steps))
    findings = [Finding(text, CLIP, rule="clipping")] if unclipped else []
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
    return [*findings, Finding(LONG_SUM.format(*longest), CLIP, rule="clipping")]


def _changing(steps: Sequence[Step]) -> Step | None:
    """Return the first step whose divisor would change with one record fewer."""
    return next(
        (step for step in steps if step.neighbour_divisor not in (None, step.divisor)), None
    )


def divisors(steps: Sequence[Step]) -> list[Finding]:
    texts = []
    if step := _changing(steps):
        texts.append(NEIGHBOUR.format(step.divisor, step.neighbour_divisor))
    if divides_by_batch(steps):
        texts.append(OWN_SIZE)
    return [Finding(each, EXPECTED, rule="data-dependent-divisor") for each in texts]


def divides_by_batch(steps: Sequence[Step]) -> bool:
    """Return whether the divisor of every step is the size of its batch, which varies."""
    own = [step for step in steps if step.batch]
    return len({step.batch for step in own}) > 1 and all(
        math.isclose(step.divisor, step.batch or 0, rel_tol=1e-5) for step in own
    )


def undercharged(steps: Sequence[Step]) -> list[Finding]:
    """Return whether an accountant recorded more noise than a step had; adaptive ones aside."""
    for step in steps:
        if step.charged is None or step.noise_multiplier is None or step.adaptive:
            continue
        if step.charged.noise_multiplier > step.noise_multiplier * (1 + EXCESS):
            numbers = step.charged.noise_multiplier, step.noise_multiplier
            return [Finding(UNDERCHARGED.format(*numbers), NORM, rule="noise-norm")]
    return []


def uncounted(steps: Sequence[Step], counted: int) -> list[Finding]:
    """Return whether an accountant's last answer counts fewer steps than were charged."""
    if counted >= len(steps):
        return []
    engines = len({step.engine for step in steps})
    of = f" ({engines} engines)" if engines > 1 else ""
    text = UNCOUNTED.format(counted, len(steps), of)
    return [Finding(text, KEEP, "caution", "rebuilt-accountant")]


def epsilon(multipliers: Sequence[float], rates: Sequence[float], delta: float) -> float:
    """Return epsilon of Gaussian steps, each of a Poisson sample; infinite without noise."""
    return math.inf if 0.0 in multipliers else PLD.epsilon(mechanism(multipliers, rates), delta)


def mechanism(
    multipliers: Sequence[float],
    rates: Sequence[float],
    neighbouring: Neighbouring = Neighbouring.ADD_REMOVE,
) -> Mechanism:
    # Equal steps differ in the last digits, because they were computed differently.
    kinds = Counter(
        (float(f"{z:.9g}"), float(f"{q:.12g}")) for z, q in zip(multipliers, rates, strict=True)
    )
    steps = tuple(Steps(z, count, min(1.0, q)) for (z, q), count in kinds.items())
    return Mechanism(steps, neighbouring)
