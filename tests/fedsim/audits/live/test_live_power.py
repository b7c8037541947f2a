"""A measurement supports a claim only where it might have refuted it."""

from bisect import bisect_left

import numpy as np
import pytest

from adversaries.bounds import canaries
from adversaries.statistics import estimators
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.live import live_report
from fedsim.audits.live.live_audit import CanaryWatch, LiveAudit
from fedsim.configuration import from_run_config


@pytest.mark.parametrize("bound", [0.05, 0.34, 0.99])
def test_trials_that_are_enough_raise_the_alarm_when_all_are_won(bound):
    audit = LiveAudit()
    audit.config = from_run_config({"trials.count": 8})
    for trials in (2**power for power in range(2, 13)):
        worlds = np.arange(trials) % 2 == 0
        won = estimators.advantage(worlds, np.where(worlds, 9.0, -9.0), ALARM_CONFIDENCE)
        assert live_report.able(audit, worlds, bound) == (won.interval.low > bound)


@pytest.mark.parametrize("claimed", [0.2, 0.5, 1.0, 2.0])
def test_canaries_that_are_enough_tell_half_of_the_noise_from_all_of_it(claimed):
    """In 95 % of the runs: half of the noise shows as twice the signal."""
    rng = np.random.default_rng(0)

    def telling(count):
        watch = CanaryWatch([], 1.0)
        watch._batches[0] = np.arange(count)[None] % 2 == 0, np.zeros((1, count)), claimed**2
        return watch.telling(ALARM_CONFIDENCE)

    def told(count):
        """Return how often so many canaries raise the alarm under half of the noise."""
        coins = np.arange(count) % 2 == 0
        scores = 2 * claimed * coins + rng.standard_normal((400, count))
        found = [canaries.effect(coins, each, ALARM_CONFIDENCE) for each in scores]
        return np.mean([each.interval.low > claimed for each in found])

    enough = 2 * bisect_left(range(2, 2**13), True, key=lambda half: telling(2 * half)) + 4
    assert not telling(enough - 2) and telling(enough)
    assert told(enough) >= 0.92  # chance leaves 400 runs of 95 % below that once in 200 times
    assert told(2 * enough // 3) < 0.9
