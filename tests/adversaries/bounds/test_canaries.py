"""Canaries measure the signal-to-noise ratio of one release, and cry wolf as rarely as they say."""

import math

import numpy as np
import pytest

from adversaries.bounds import canaries
from adversaries.errors import InputError

MODEL = {
    "weight": np.zeros((4, 3), np.float32),
    "steps": np.array([7]),
    "bias": np.ones(5, np.float64),
}


def test_a_direction_is_a_unit_vector_and_a_function_of_its_seed():
    one, same, other = (canaries.direction(seed, 1000) for seed in (1, 1, 2))
    assert np.linalg.norm(one) == pytest.approx(1)
    np.testing.assert_array_equal(one, same)
    assert abs(one @ other) < 6 / math.sqrt(1000)
    with pytest.raises(InputError, match="no floating-point parameters"):
        canaries.direction(1, 0)


def test_a_displaced_model_moved_by_that_length_in_floating_point_arrays_alone():
    moved = canaries.displaced(MODEL, 5, 0.25)
    assert {name: array.dtype for name, array in moved.items()} == {
        name: array.dtype for name, array in MODEL.items()
    }
    np.testing.assert_array_equal(moved["steps"], MODEL["steps"])
    assert canaries.score(MODEL, moved, 5) == pytest.approx(0.25, rel=1e-6)
    change = canaries.vector(moved) - canaries.vector(MODEL)
    assert np.linalg.norm(change) == pytest.approx(0.25, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.0, 0.8, 3.0])
def test_the_interval_of_mu_covers_the_truth_as_often_as_it_says(mu):
    generator, covered, games = np.random.default_rng(3), 0, 400
    for _ in range(games):
        coins = generator.random(24) < 0.5
        scores = 7 + 0.3 * (generator.standard_normal(24) + mu * coins)
        interval = canaries.effect(coins, scores, 0.9).interval
        covered += interval.low <= mu <= interval.high
    # Binomial(400, .9): six standard deviations below and above the mean; mu = 0 is covered more
    # often, because no interval goes below 0.
    assert 0.81 * games <= covered
    assert mu == 0 or covered <= 0.99 * games


def test_an_effect_without_spread_or_rounds_is_said_to_be_so():
    coins = np.array([True, True, False, False])
    assert math.isinf(canaries.effect(coins, coins * 1.0, 0.9).mu)
    assert canaries.effect(coins, np.ones(4), 0.9).reason == "scores that do not vary"
    one_sided = canaries.effect(coins[:3], np.arange(3.0), 0.9)
    assert "fewer than two rounds" in (one_sided.reason or "")
    assert (one_sided.interval.low, one_sided.interval.high) == (0, math.inf)


def test_a_negative_difference_without_spread_is_as_one_of_next_to_none():
    coins = np.arange(6) < 3
    for included, infinite in ((coins, -math.inf), (~coins, math.inf)):
        sharp = canaries.effect(included, np.where(coins, -1.0, 1.0), 0.95)
        blurred = canaries.effect(
            included, np.where(coins, -1.0, 1.0) + 1e-7 * np.array([1, 0, -1, 1, 0, -1]), 0.95
        )
        assert sharp.mu == infinite
        assert (blurred.mu > 0) == (infinite > 0)
        assert (sharp.interval.low > 0) == (infinite > 0)
        assert sharp.interval.high == blurred.interval.high
