"""Rounds add up over trainings, and their running value is never understated."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.game.mechanisms import privacy
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.releases import Rounds
from fedsim.privacy.trust import Vantage


def test_four_hundred_trainings_are_accounted_as_all_their_rounds(small):
    config = small({"privacy.noise-source": "system", "privacy.delta": 0.001})
    training = Counter({Rounds(7.326, participants=3): 30})
    one = privacy.epsilon_of(config, training, Vantage.PARTICIPANT)
    all_of_them = privacy.times(training, 400)
    together = privacy.epsilon_of(config, all_of_them, Vantage.PARTICIPANT)
    assert one == pytest.approx(2.1972, abs=1e-3)
    assert together == PLD.epsilon(Mechanism.alike(7.326, 12_000), 0.001)
    assert together == pytest.approx(157.09, abs=0.01)


@given(st.integers(1, 10**9))
def test_counts_are_rounded_up_by_at_most_a_sixteenth(count):
    rounded = privacy.rounded_up(count)
    assert count <= rounded <= count * (1 + 1 / 16)
    assert count > 16 or rounded == count
    assert privacy.rounded_up(rounded) == rounded
    assert privacy.rounded_up(count + 1) >= rounded


def test_a_long_training_takes_few_values():
    assert len({privacy.rounded_up(count) for count in range(1, 5001)}) < 150
