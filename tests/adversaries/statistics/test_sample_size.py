"""How many trials a precision takes: held against the interval itself, outcome by outcome."""

import numpy as np
import pytest
from scipy.stats import binom

from adversaries.errors import InputError
from adversaries.statistics import gaussian
from adversaries.statistics.design import INDEPENDENT, Design
from adversaries.statistics.estimators import advantage
from adversaries.statistics.lower_bounds import LOWER_BOUNDS
from adversaries.statistics.sample_size import (
    expected_halfwidth,
    expected_stop,
    trials_for_epsilon,
    trials_needed,
    typical,
)
from adversaries.statistics.stopping import enough, interim_analyses


@pytest.mark.parametrize("design", [INDEPENDENT, Design(common=True), Design(False, 0.3)])
@pytest.mark.parametrize("expected", [0.0, 0.3, 0.9])
def test_the_expected_length_is_the_mean_over_all_outcomes(design: Design, expected: float) -> None:
    trials = 40
    worlds = np.tile([True, False], trials // 2)
    sizes = trials // 2 if design.common else trials
    chance = expected if design.common else (1 + expected) / 2
    mean = 0.0
    for count in range(sizes + 1):
        if design.common:  # both of a pair, or that on D
            won = np.repeat([[True, True], [True, False]], [count, sizes - count], axis=0).ravel()
        else:
            won = np.arange(trials) < count
        found = advantage(worlds, np.where(won == worlds, 1.0, -1.0), 0.95, design).interval
        mean += binom.pmf(count, sizes, chance) * (found.high - found.low) / 2
    assert expected_halfwidth(expected, trials, 0.95, design) == pytest.approx(mean, rel=1e-6)


@pytest.mark.parametrize("common", [False, True])
def test_the_number_of_trials_is_the_smallest_that_is_enough(common: bool) -> None:
    design = Design(common)
    trials = trials_needed(0.3, 0.1, 0.95, design)
    assert trials % 2 == 0
    assert expected_halfwidth(0.3, trials, 0.95, design) <= 0.1
    assert expected_halfwidth(0.3, trials - 2, 0.95, design) > 0.1


def test_common_random_numbers_need_fewer_trials_for_a_weak_adversary() -> None:
    assert trials_needed(0.1, 0.05, 0.95, Design(True)) < trials_needed(0.1, 0.05, 0.95) / 2


def test_trials_stop_at_a_look_and_no_later_than_is_always_enough() -> None:
    for common in (False, True):
        stop = expected_stop(0.9, 0.1, 0.95, 20, common)
        assert stop in interim_analyses(0.1, 0.95, 10**6, 20, common)
        assert stop < enough(0.1, 0.95, common)


def test_a_campaign_without_luck_has_the_predicted_advantage_and_moments() -> None:
    worlds, odds = typical(0.8, 4000)
    found = advantage(worlds, odds, 0.95)
    assert found.point == pytest.approx(gaussian.advantage(0.8), abs=1e-3)
    assert odds[worlds].mean() == pytest.approx(0.32, abs=1e-9)
    assert odds[~worlds].std() == pytest.approx(0.8, rel=2e-3)


def test_a_lower_bound_reaches_its_share_with_the_stated_trials_and_not_with_fewer() -> None:
    mu, delta = gaussian.mu_of_epsilon(2.0, 1e-5), 1e-5
    trials = trials_for_epsilon("gaussian", mu, 1.0, delta, 0.95)
    assert trials is not None
    bound = LOWER_BOUNDS["gaussian"].bound
    assert bound(*typical(mu, trials), delta, 0.95).epsilon >= 1
    assert bound(*typical(mu, trials - 2), delta, 0.95).epsilon < 1
    # Bounds from counts move in steps: a smaller number may do too.
    mu, bound = gaussian.mu_of_epsilon(4.0, delta), LOWER_BOUNDS["clopper_pearson_split"].bound
    trials = trials_for_epsilon("clopper_pearson_split", mu, 1.0, delta, 0.95)
    assert trials is not None
    reached = [
        bound(*typical(mu, number), delta, 0.95).epsilon >= 1
        for number in (trials - 160, trials - 2, trials)
    ]
    assert reached == [True, False, True]
    # At the threshold 0 the rates of this mu prove no more than .51, however many trials there are.
    mu = gaussian.mu_of_epsilon(2.0, delta)
    assert trials_for_epsilon("clopper_pearson", mu, 1.0, delta, 0.95) is None


@pytest.mark.parametrize(
    ("expected", "halfwidth"), [(1.0, 0.1), (float("nan"), 0.1), (0.3, 0.0), (0.3, 1e-6)]
)
def test_what_cannot_be_asked_for_is_refused(expected: float, halfwidth: float) -> None:
    with pytest.raises(InputError):
        trials_needed(expected, halfwidth, 0.95)


def test_odd_trials_have_no_pairs() -> None:
    with pytest.raises(InputError, match="even number"):
        expected_halfwidth(0.3, 7, 0.95)
