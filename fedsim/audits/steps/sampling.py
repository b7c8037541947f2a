"""Tests of how batches were drawn: their sizes, and how often each record took part."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import bdtrc

from adversaries.attacks import residuals
from adversaries.statistics.intervals import binomial_low
from fedsim.audits.steps.noise import ALPHA
from fedsim.audits.steps.watch import POISSON, Step

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
