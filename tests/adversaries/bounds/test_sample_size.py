"""How many trials a precision takes: held against the interval itself, outcome by outcome."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from adversaries.bounds.lower_bounds import LOWER_BOUNDS
from adversaries.bounds.sample_size import (
    expected_halfwidth,
    expected_stop,
    interval_at,
    trials_for_epsilon,
    trials_needed,
    trials_to_tell,
    unlucky,
)
from adversaries.errors import InputError
from adversaries.statistics import gaussian
from adversaries.statistics.design import INDEPENDENT, Design
from adversaries.statistics.estimators import advantage
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


def test_bad_luck_brings_the_worlds_nearer_to_each_other() -> None:
    worlds, odds = unlucky(0.8, 4000)
    # By .84 standard errors, sqrt(4/T + mu^2/(2 T)) each.
    nearer = 0.8416 * math.sqrt((4 + 0.32) / 4000)
    assert odds[worlds].mean() - odds[~worlds].mean() == pytest.approx(0.8 * (0.8 - nearer))
    assert odds[~worlds].std() == pytest.approx(0.8, rel=2e-3)


def test_a_lower_bound_reaches_its_share_in_four_of_five_campaigns() -> None:
    mu, delta = gaussian.mu_of_epsilon(2.0, 1e-5), 1e-5
    trials = trials_for_epsilon("gaussian", mu, 1.0, delta, 0.95)
    assert trials is not None
    bound, rng = LOWER_BOUNDS["gaussian"].bound, np.random.default_rng(0)
    worlds = np.arange(trials) % 2 == 0
    middle = np.where(worlds, mu**2 / 2, -(mu**2) / 2)
    reached = [
        bound(worlds, middle + mu * rng.standard_normal(trials), delta, 0.95).epsilon >= 1
        for _ in range(400)
    ]
    # Four standard errors; samples that do not look normal, one of a hundred, prove nothing.
    assert np.mean(reached) == pytest.approx(0.8, abs=0.08)
    assert bound(*unlucky(mu, trials), delta, 0.95).epsilon >= 1
    assert bound(*unlucky(mu, trials - 2), delta, 0.95).epsilon < 1
    # At the threshold 0 the rates of this mu prove no more than .51, however many trials there are.
    assert trials_for_epsilon("clopper_pearson", mu, 1.0, delta, 0.95) is None


@pytest.mark.parametrize("common", [False, True])
@pytest.mark.parametrize(("advantage", "limit"), [(0.25, 0.2), (0.05, 0.1), (0.6, 0.65), (-0.1, 0)])
def test_so_many_trials_tell_in_four_of_five_campaigns(
    advantage: float, limit: float, common: bool
) -> None:
    design, rng = Design(common), np.random.default_rng(1)
    needed = trials_to_tell(advantage, limit, 0.95, design)

    def told(trials: int) -> float:
        """Return how often the interval leaves out the limit, of independent trials or pairs."""
        if common:
            drawn = 2 * np.sign(advantage) * rng.binomial(trials // 2, abs(advantage), 400)
        else:
            drawn = 2 * rng.binomial(trials, (1 + advantage) / 2, 400) - trials
        found = [interval_at(each / trials, trials, 0.95, design) for each in drawn]
        return float(np.mean([not one.low <= limit <= one.high for one in found]))

    # Counts move in steps, so that it may be a little more than four of five.
    assert 0.72 <= told(needed) <= 0.9
    assert told(needed // 2 // 2 * 2) < 0.7


@pytest.mark.parametrize(
    ("expected", "halfwidth"), [(1.0, 0.1), (float("nan"), 0.1), (0.3, 0.0), (0.3, 1e-6)]
)
def test_what_cannot_be_asked_for_is_refused(expected: float, halfwidth: float) -> None:
    with pytest.raises(InputError):
        trials_needed(expected, halfwidth, 0.95)


def test_odd_trials_have_no_pairs() -> None:
    with pytest.raises(InputError, match="even number"):
        expected_halfwidth(0.3, 7, 0.95)
