"""A measurement supports a claim only where it might have refuted it."""

import re
from dataclasses import dataclass

import numpy as np
import pytest

from adversaries.statistics import canaries, estimators
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.auditor import live_power
from fedsim.auditor.canary_watch import CanaryWatch
from fedsim.auditor.live_audit import LiveAudit
from fedsim.config import from_run_config


def _lacking(audit: LiveAudit, trials: int, bound: float) -> str:
    """Return what is lacking where so many trials are told of, half of them on D."""
    audit.config = from_run_config({"trials.count": trials})
    worlds = np.arange(trials) % 2 == 0
    return "; ".join(live_power.lacking(audit, worlds, worlds, bound))


@pytest.mark.parametrize("bound", [0.05, 0.34, 0.99])
def test_trials_that_are_enough_raise_the_alarm_when_all_are_won(bound: float) -> None:
    said = _lacking(LiveAudit(), 4, bound)
    enough = int(re.findall(r"it takes (\d+)", said)[0])
    assert _lacking(LiveAudit(), enough - 2, bound) != ""
    assert _lacking(LiveAudit(), enough, bound) == ""
    worlds = np.arange(enough) % 2 == 0
    won = estimators.advantage(worlds, np.where(worlds, 9.0, -9.0), ALARM_CONFIDENCE).interval
    assert won.low > bound


@dataclass
class Planted(CanaryWatch):
    """Canaries of these coins and scores, whose signal is claimed to be this."""

    known: tuple[np.ndarray, np.ndarray, float] = (np.zeros(0, bool), np.zeros(0), 1.0)

    @property
    def coins(self) -> np.ndarray:
        return self.known[0]

    def effect(self, confidence: float) -> canaries.Effect:
        return canaries.effect(*self.known[:2], confidence)

    def prediction(self) -> float:
        return self.known[2]


@pytest.mark.parametrize("claimed", [0.2, 2.0])
def test_canaries_that_are_enough_tell_half_of_the_noise_from_all_of_it(
    claimed: float,
) -> None:
    def planted(count: int) -> LiveAudit:
        """Return an audit with canaries whose signal is exactly twice the claimed."""
        coins = np.arange(count) % 2 == 0
        spread = np.sqrt((count - 2) / count) * np.where(np.arange(count) % 4 < 2, 1, -1)
        audit = LiveAudit()
        audit.canaries = Planted([], 1.0, known=(coins, spread + 2 * claimed * coins, claimed))
        return audit

    few = planted(4)
    # Two a side, which were once taken for enough.
    assert few.canaries is not None
    found = few.canaries.effect(ALARM_CONFIDENCE)
    assert found is not None
    assert found.reason is None
    enough = int(re.findall(r"it takes (\d+);", _lacking(few, 4, 0.9))[1])
    for count, told in ((enough // 4 * 4 - 4, False), (enough // 4 * 4 + 4, True)):
        watch = planted(count).canaries
        assert watch is not None
        effect = watch.effect(ALARM_CONFIDENCE)
        assert effect is not None
        assert (effect.interval.low > claimed) is told
        assert (_lacking(planted(count), 4, 0.9) == "") is told
