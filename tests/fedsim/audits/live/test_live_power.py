"""A measurement supports a claim only where it might have refuted it."""

from bisect import bisect_left

import numpy as np
import pytest

from adversaries.bounds import canaries
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.live.live_audit import CanaryWatch


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
