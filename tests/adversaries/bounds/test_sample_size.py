"""How many trials a precision takes: held against the interval itself, outcome by outcome."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from adversaries.bounds.lower_bounds import LOWER_BOUNDS
from adversaries.bounds.sample_size import (
    expected_halfwidth,
    interval_at,
    trials_for_epsilon,
    trials_needed,
    trials_to_tell,
    unlucky,
)
from adversaries.errors import InputError
from adversaries.statistics import gaussian
from adversaries.statistics.estimators import advantage


@pytest.mark.parametrize("expected", [0.0, 0.3, 0.9])
def test_the_expected_length_is_the_mean_over_all_outcomes(expected):
    trials, mean = 40, 0.0
    worlds = np.tile([True, False], trials // 2)
    for count in range(trials + 1):
        won = np.arange(trials) < count
        found = advantage(worlds, np.where(won == worlds, 1.0, -1.0), 0.95).interval
        mean += binom.pmf(count, trials, (1 + expected) / 2) * (found.high - found.low) / 2
    assert expected_halfwidth(expected, trials, 0.95) == pytest.approx(mean, rel=1e-6)


def test_the_number_of_trials_is_the_smallest_that_is_enough():
    trials = trials_needed(0.3, 0.1, 0.95)
    assert trials % 2 == 0
    assert expected_halfwidth(0.3, trials, 0.95) <= 0.1
    assert expected_halfwidth(0.3, trials - 2, 0.95) > 0.1


def test_bad_luck_brings_the_worlds_nearer_to_each_other():
    worlds, odds = unlucky(0.8, 4000)
    # By .84 standard errors, sqrt(4/T + mu^2/(2 T)) each.
    nearer = 0.8416 * math.sqrt((4 + 0.32) / 4000)
    assert odds[worlds].mean() - odds[~worlds].mean() == pytest.approx(0.8 * (0.8 - nearer))
    assert odds[~worlds].std() == pytest.approx(0.8, rel=2e-3)


def test_a_lower_bound_reaches_its_share_in_four_of_five_campaigns():
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


@pytest.mark.parametrize(("advantage", "limit"), [(0.25, 0.2), (0.05, 0.1), (0.6, 0.65), (-0.1, 0)])
def test_so_many_trials_tell_in_four_of_five_campaigns(advantage, limit):
    rng, needed = np.random.default_rng(1), trials_to_tell(advantage, limit, 0.95)

    def told(trials):
        """Return how often the interval leaves out the limit."""
        drawn = 2 * rng.binomial(trials, (1 + advantage) / 2, 400) - trials
        found = [interval_at(each / trials, trials, 0.95) for each in drawn]
        return float(np.mean([not one.low <= limit <= one.high for one in found]))

    # Counts move in steps, so that it may be a little more than four of five.
    assert 0.72 <= told(needed) <= 0.9
    assert told(needed // 2 // 2 * 2) < 0.7


@pytest.mark.parametrize(
    ("expected", "halfwidth"), [(1.0, 0.1), (float("nan"), 0.1), (0.3, 0.0), (0.3, 1e-6)]
)
def test_what_cannot_be_asked_for_is_refused(expected, halfwidth):
    with pytest.raises(InputError):
        trials_needed(expected, halfwidth, 0.95)


def test_odd_trials_have_no_pairs():
    with pytest.raises(InputError, match="even number"):
        expected_halfwidth(0.3, 7, 0.95)
