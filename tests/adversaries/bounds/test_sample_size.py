"""How many trials a precision takes, against the mean length of the interval itself."""

import numpy as np
import pytest
from scipy.stats import binom

from adversaries.bounds.sample_size import (
    expected_halfwidth,
    trials_needed,
)
from adversaries.errors import InputError
from adversaries.statistics.estimators import advantage


@pytest.mark.parametrize("expected", [0.0, 0.3, 0.9])
def test_the_expected_length_is_the_mean_over_all_outcomes(expected):
    trials, mean = 200, 0.0
    worlds = np.tile([True, False], trials // 2)
    for count in range(trials + 1):
        won = np.arange(trials) < count
        found = advantage(worlds, np.where(won == worlds, 1.0, -1.0), 0.95).interval
        mean += binom.pmf(count, trials, (1 + expected) / 2) * (found.high - found.low) / 2
    assert expected_halfwidth(expected, trials, 0.95) == pytest.approx(mean, rel=0.02)


def test_the_number_of_trials_is_the_smallest_that_is_enough():
    trials = trials_needed(0.3, 0.1, 0.95)
    assert trials % 2 == 0
    assert expected_halfwidth(0.3, trials, 0.95) <= 0.1
    assert expected_halfwidth(0.3, trials - 2, 0.95) > 0.1


@pytest.mark.parametrize(
    ("expected", "halfwidth"), [(1.0, 0.1), (float("nan"), 0.1), (0.3, 0.0), (0.3, 1e-6)]
)
def test_what_cannot_be_asked_for_is_refused(expected, halfwidth):
    with pytest.raises(InputError):
        trials_needed(expected, halfwidth, 0.95)
