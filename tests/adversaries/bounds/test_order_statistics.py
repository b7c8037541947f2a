"""The one-run bound by order statistics: its law, its coverage and its power."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import expit

from adversaries.bounds import one_run, order_statistics
from adversaries.bounds.guessing import right_guesses
from adversaries.errors import InputError
from adversaries.statistics.gaussian import epsilon as gaussian_epsilon
from adversaries.statistics.gaussian import mu_of_epsilon

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

DELTA, CONFIDENCE = 1e-5, 0.95


def _game(mu: float, canaries: int, runs: int, seed: int = 0) -> tuple[Bools, Floats]:
    """Return coins and scores of orthogonal canaries in Gaussian noise, [runs, m]."""
    rng = np.random.default_rng(seed)
    coins = rng.random((runs, canaries)) < 0.5
    return coins, mu * coins + rng.standard_normal(coins.shape)


@pytest.mark.parametrize(("canaries", "mu"), [(8, 0.5), (40, 2.0), (1000, 0.0), (300, 0.9)])
def test_the_law_is_that_of_a_signed_rank_statistic(canaries: int, mu: float) -> None:
    runs = 8000
    y = mu / 2 + np.random.default_rng(1).standard_normal((runs, canaries))
    positive = np.take_along_axis(y > 0, np.argsort(-np.abs(y), axis=1), axis=1)
    sums = sum(positive[:, :made].sum(1) for made in order_statistics.counted(canaries))
    found = order_statistics.p_values(canaries, mu)
    drawn = (sums[:, None] >= np.arange(found.size)).mean(axis=0)
    # Dvoretzky, Kiefer and Wolfowitz: further off once in 10 000.
    assert np.abs(drawn - found).max() < math.sqrt(math.log(2e4) / 2 / runs)


def test_eight_canaries_by_brute_force_without_signal() -> None:
    # Without a signal every guess is a fair coin, whatever its rank.
    twice, once = order_statistics.counted(8)
    coins = (np.arange(2**once)[:, None] >> np.arange(once)) & 1
    sums = coins.sum(1) + coins[:, :twice].sum(1)
    expected = [(sums >= each).mean() for each in range(once + twice + 1)]
    np.testing.assert_allclose(order_statistics.p_values(8, 0.0), expected, atol=1e-10)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0, 8.0])
def test_the_bound_is_above_the_truth_no_more_often_than_alpha(epsilon: float) -> None:
    runs = 2000
    coins, scores = _game(mu_of_epsilon(epsilon, DELTA), 120, runs)
    found = order_statistics.order_bounds(coins, scores, DELTA, CONFIDENCE)
    assert (found > epsilon).mean() <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / runs)
    # The best attack all but uses up the level: the bound does not hold for being loose.
    assert (found > epsilon).mean() > 0.02


@pytest.mark.parametrize(
    "nuisance",
    [
        lambda rng, shape: 5 * rng.standard_cauchy(shape),
        lambda rng, shape: np.where(np.arange(shape[1]) < 20, 50.0, 0.0) * np.ones(shape),
    ],
)
def test_it_holds_whatever_else_is_in_the_sums(nuisance) -> None:  # type: ignore[no-untyped-def]
    runs, epsilon = 1000, 2.0
    coins, scores = _game(mu_of_epsilon(epsilon, DELTA), 120, runs)
    scores = scores + nuisance(np.random.default_rng(2), scores.shape)
    found = order_statistics.order_bounds(coins, scores, DELTA, CONFIDENCE)
    assert (found > epsilon).mean() <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / runs)


@pytest.mark.slow
def test_a_thousand_canaries_prove_more_than_three_point_four_of_four() -> None:
    coins, scores = _game(mu_of_epsilon(4.0, DELTA), 1000, 60)
    found = order_statistics.order_bounds(coins, scores, DELTA, CONFIDENCE)
    assert 3.4 < np.median(found) < 4
    f_dp = one_run.f_dp_bounds(coins[:2], scores[:2], DELTA, CONFIDENCE)
    assert (found[:2] > f_dp).all()


def test_of_canaries_that_are_given_away_together_it_does_not_hold() -> None:
    # One privacy loss for all canaries: each by itself has the trade-off curve of this mu.
    runs, epsilon = 400, 2.0
    mu, rng = mu_of_epsilon(epsilon, DELTA), np.random.default_rng(4)
    coins = rng.random((runs, 400)) < 0.5
    loss = np.abs(mu**2 / 2 + mu * rng.standard_normal((runs, 1)))
    told = coins == (rng.random(coins.shape) < expit(loss))
    sums = sum(right_guesses(coins, told * 1.0, made) for made in order_statistics.counted(400))
    refuted = order_statistics.p_values(400, mu)[sums] <= 0.05
    assert refuted.mean() > 0.05 + 4 * math.sqrt(0.05 * 0.95 / runs)
    assert "orthogonal" in order_statistics.ASSUMES


def test_one_trial_is_one_of_many_and_says_what_it_rests_on() -> None:
    coins, scores = _game(1.5, 400, 3)
    many = order_statistics.order_bounds(coins, scores, DELTA, CONFIDENCE)
    for trial, expected in enumerate(many):
        bound = order_statistics.order_bound(coins[trial], scores[trial], DELTA, CONFIDENCE)
        assert bound.epsilon == expected
        assert bound.epsilon == gaussian_epsilon(bound.details["mu_low"], DELTA)
    assert bound.details["guesses_twice"] == 100
    assert bound.details["guesses"] == 266
    # The limit is the largest multiple of the step that is refuted.
    total = int(bound.details["right"] + bound.details["right_twice"])
    mu = bound.details["mu_low"]
    assert order_statistics.p_values(400, mu)[total] <= 0.05
    assert order_statistics.p_values(400, mu + order_statistics.STEP)[total] > 0.05


def test_scores_that_say_nothing_and_few_canaries_prove_nothing() -> None:
    coins = np.arange(1000) < 500
    assert order_statistics.order_bound(coins, np.zeros(1000), DELTA, CONFIDENCE).epsilon == 0
    few = order_statistics.order_bound(coins[:7], np.zeros(7), DELTA, CONFIDENCE)
    assert (few.epsilon, few.reason) == (0, "fewer than 8 canaries")
    assert order_statistics.order_bounds(coins[None, :7], np.zeros((1, 7)), DELTA, 0.9) == [0]
    with pytest.raises(InputError, match="delta is 0"):
        order_statistics.order_bound(coins, np.zeros(1000), 0.0, CONFIDENCE)
