"""Canaries measure the signal-to-noise ratio of one release, and cry wolf as rarely as they say."""

import math

import numpy as np
import pytest

from adversaries.bounds import canaries


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
