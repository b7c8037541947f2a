"""A measurement supports a claim only where it might have refuted it."""

import numpy as np
import pytest

from adversaries.bounds import canaries
from adversaries.statistics import estimators
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.live import live_report
from fedsim.audits.live.live_audit import LiveAudit
from fedsim.audits.live.live_rounds import CanaryFindings
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
def test_canaries_that_are_telling_tell_half_of_the_noise_from_all_of_it(claimed):
    """In 95 % of the runs: half of the noise shows as twice the signal."""
    rng = np.random.default_rng(0)

    def measured(count, times):
        coins = np.arange(count) % 2 == 0
        scores = times * claimed * coins + rng.standard_normal(count)
        found = canaries.effect(coins, scores, ALARM_CONFIDENCE)
        kept = {"reason": found.reason, "claimed_mu": claimed, "canaries": count, "belief": None}
        return CanaryFindings(mu=found.mu, interval=[*found.interval.ends], **kept)

    counts = [2**power for power in range(3, 14)]
    telling = [count for count in counts if measured(count, 1.0).telling]
    assert telling and telling[0] > counts[0]
    seen = [measured(telling[0], 2.0).over for _ in range(200)]
    assert np.mean(seen) >= 0.9  # chance leaves 200 runs of 95 % below that once in a thousand
