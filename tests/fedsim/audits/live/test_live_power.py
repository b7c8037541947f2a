"""A measurement supports a claim only where it might have refuted it."""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import pytest

from adversaries.bounds import canaries
from adversaries.statistics import estimators
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.live import live_report
from fedsim.audits.live.live_audit import LiveAudit
from fedsim.audits.live.live_rounds import CanaryWatch
from fedsim.configuration import from_run_config


def _able(audit, trials, bound):
    """Return whether so many trials are enough, half of them on D."""
    audit.config = from_run_config({"trials.count": trials})
    return live_report.able(audit, np.arange(trials) % 2 == 0, bound)


def _least(suffices):
    """Return the least even number that suffices."""
    return 2 * bisect_left(range(2**13), True, key=lambda half: suffices(2 * max(2, half)))


@pytest.mark.parametrize("bound", [0.05, 0.34, 0.99])
def test_trials_that_are_enough_raise_the_alarm_when_all_are_won(bound):
    enough = _least(lambda trials: _able(LiveAudit(), trials, bound))
    assert not _able(LiveAudit(), enough - 2, bound)
    assert _able(LiveAudit(), enough, bound)
    worlds = np.arange(enough) % 2 == 0
    won = estimators.advantage(worlds, np.where(worlds, 9.0, -9.0), ALARM_CONFIDENCE).interval
    assert won.low > bound


@dataclass
class Planted(CanaryWatch):
    """Canaries of these coins and scores, whose signal is claimed to be this."""

    known: tuple[np.ndarray, np.ndarray, float] = (np.zeros(0, bool), np.zeros(0), 1.0)

    @property
    def coins(self):
        return self.known[0]

    def effect(self, confidence):
        return canaries.effect(*self.known[:2], confidence)

    def prediction(self):
        return self.known[2]


@pytest.mark.parametrize("claimed", [0.2, 2.0])
def test_canaries_that_are_enough_tell_half_of_the_noise_from_all_of_it(claimed):
    """In 95 % of the runs: half of the noise shows as twice the signal."""
    rng = np.random.default_rng(0)

    def planted(count):
        coins = np.arange(count) % 2 == 0
        scores = 2 * claimed * coins + rng.standard_normal(count)
        audit = LiveAudit()
        audit.canaries = Planted([], 1.0, known=(coins, scores, claimed))
        return audit

    def told(count):
        """Return how often so many canaries raise the alarm."""
        watches = [planted(count).canaries for _ in range(200)]
        effects = [watch.effect(ALARM_CONFIDENCE) for watch in watches if watch is not None]
        return float(np.mean([each.interval.low > claimed for each in effects if each]))

    enough = _least(lambda count: _able(planted(count), 4, 0.9))
    assert not _able(planted(enough - 2), 4, 0.9)
    assert _able(planted(enough), 4, 0.9)
    assert told(enough) >= 0.9  # chance leaves 200 runs of 95 % below that once in a thousand times
    assert told(2 * enough // 3) < 0.9
