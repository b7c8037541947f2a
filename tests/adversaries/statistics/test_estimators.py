"""Estimators agree with closed forms and published numbers, and err as rarely as they say.

Statements about frequencies are checked over repeated games from a fixed seed: a count of repeats
is held against the binomial distribution that it must follow, at a tail of 1e-4.
"""

from statistics import NormalDist

import numpy as np
import pytest
from games import balanced, decisions, gaussian_game, often_at_most
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from adversaries.errors import InputError
from adversaries.statistics import gaussian
from adversaries.statistics.estimators import (
    advantage,
    delta_prime,
    epsilon_from_advantage,
    epsilon_from_belief,
    epsilon_from_sensitivities,
)
from adversaries.statistics.forecast import predict, trial_mu
from adversaries.statistics.intervals import clopper_pearson

DELTA = 0.01
REPEATS = 2000
PHI = NormalDist().cdf


# Advantage.

# dataset, noise, neighbouring, delta, rho_beta, repetitions, wins, share of beliefs above 0.9:
# runs that the paper's authors recorded, all trained on D.
RECORDED = [
    ("MNIST", "LS", "U", 0.01, 0.9, 999, 613, 0.002002),
    ("MNIST", "GS", "B", 0.01, 0.9, 999, 588, 0.0),
    ("MNIST", "LS", "B", 0.01, 0.75, 245, 141, 0.0),
    ("MNIST", "LS", "B", 0.01, 0.99, 493, 374, 0.105477),
    ("MNIST", "LS", "B", 0.01, 0.52, 242, 128, 0.0),
    ("Purchase", "LS", "B", 0.001, 0.75, 1000, 533, 0.0),
    ("Purchase", "LS", "B", 0.001, 0.99, 1000, 699, 0.081),
    ("Purchase", "LS", "B", 0.001, 0.9, 1000, 626, 0.0),
    ("Purchase", "LS", "U", 0.001, 0.9, 1000, 616, 0.0),
]
recorded = pytest.mark.parametrize(
    ("repetitions", "wins", "sure"), [(row[5], row[6], row[7]) for row in RECORDED]
)


@recorded
def test_the_papers_runs_on_d_alone(repetitions, wins, sure):
    beyond = round(sure * repetitions)
    log_odds = np.repeat([3.0, 1.0, -1.0], [beyond, wins - beyond, repetitions - wins])
    worlds = np.ones(repetitions, bool)
    found = advantage(worlds, log_odds, 0.95)
    assert found.point == pytest.approx(2 * wins / repetitions - 1, rel=1e-12)
    assert (found.wins, found.losses, found.ties) == (wins, repetitions - wins, 0)
    exact = stats.binomtest(wins, repetitions).proportion_ci(0.95, method="exact")
    assert found.interval.low == pytest.approx(2 * exact.low - 1, rel=1e-9)
    assert found.interval.high == pytest.approx(2 * exact.high - 1, rel=1e-9)
    assert found.standard_error == pytest.approx(np.sqrt((1 - found.point**2) / repetitions))
    frequency = delta_prime(worlds, log_odds, np.log(9), 0.95)
    assert frequency.point == pytest.approx(sure, abs=1e-6)


@pytest.mark.parametrize(
    ("repetitions", "wins", "mu"),
    [(999, 613, 0.6535891631872568), (999, 588, 0.6535891631872568 * 4.38 / 6)],
)
def test_the_papers_runs_agree_with_theory(repetitions, wins, mu):
    """MNIST at rho_beta .9: noise scaled to LS, and to 2C with the recorded RMS LS of 4.38."""
    worlds, log_odds = np.ones(repetitions, bool), np.ones(repetitions)
    log_odds[wins:] = -1
    interval = advantage(worlds, log_odds, 0.95).interval
    assert interval.low < 2 * PHI(mu / 2) - 1 < interval.high


def test_advantage_is_tpr_minus_fpr_whatever_the_share_of_each_world():
    found = advantage(*decisions(true=30, trials=40, false=2, others=10), 0.95)
    assert found.point == pytest.approx(30 / 40 - 2 / 10)
    variance = 0.75 * 0.25 / 40 + 0.2 * 0.8 / 10
    assert found.standard_error == pytest.approx(np.sqrt(variance))
    assert (found.wins, found.losses) == (38, 12)


def test_a_tie_is_neither_won_nor_lost_and_widens_the_interval_both_ways():
    worlds = balanced(100)
    without = np.where(worlds, 1.0, -1.0)
    with_ties = without.copy()
    with_ties[:20] = 0.0
    sure, unsure = advantage(worlds, without, 0.95), advantage(worlds, with_ties, 0.95)
    assert (unsure.wins, unsure.losses, unsure.ties) == (80, 0, 20)
    assert (sure.point, unsure.point) == (1.0, 0.8)
    assert unsure.interval.low == pytest.approx(2 * clopper_pearson(80, 100, 0.95).low - 1)
    assert unsure.interval.high == 1.0


def test_worlds_that_differ_by_one_trial_widen_the_interval_by_one_over_t():
    found = advantage(*decisions(true=40, trials=51, false=15, others=50), 0.95).interval
    exact = stats.binomtest(40 + 35, 101).proportion_ci(0.95, method="exact")
    assert found.low == pytest.approx(2 * exact.low - 1 - 1 / 101, rel=1e-9)
    assert found.high == pytest.approx(2 * exact.high - 1 + 1 / 101, rel=1e-9)


def test_worlds_of_different_size_get_an_interval_each_at_half_the_error():
    found = advantage(*decisions(true=40, trials=50, false=1, others=10), 0.95).interval
    true, false = (
        stats.binomtest(count, trials).proportion_ci(0.975, method="exact")
        for count, trials in ((40, 50), (1, 10))
    )
    assert found.low == pytest.approx(true.low - false.high, rel=1e-9)
    assert found.high == pytest.approx(true.high - false.low, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("on_d", "on_d_prime"), [(60, 60), (61, 60), (90, 30), (120, 0)], ids=str)
@pytest.mark.parametrize("ties", [0.0, 0.1])
def test_the_advantage_interval_covers_the_truth(on_d, on_d_prime, ties):
    rng = np.random.default_rng(on_d)
    worlds = np.arange(on_d + on_d_prime) < on_d
    win = np.where(worlds, 0.85, 0.3) * (1 - ties)
    chance = rng.random((REPEATS, len(worlds)))
    correct = np.where(chance < win, 1.0, np.where(chance < 1 - ties, -1.0, 0.0))
    log_odds = correct * np.where(worlds, 1, -1)
    truth = np.mean([2 * 0.85 - 1, 2 * 0.3 - 1][: 2 if on_d_prime else 1]) * (1 - ties)
    found = [advantage(worlds, row, 0.9) for row in log_odds]
    missed = sum(not a.interval.low <= truth <= a.interval.high for a in found)
    assert often_at_most(missed, REPEATS, 0.1)
    assert np.mean([a.point for a in found]) == pytest.approx(truth, abs=0.01)
    spread = np.std([a.point for a in found])
    assert np.mean([a.standard_error for a in found]) == pytest.approx(spread, rel=0.1)


games = st.lists(
    st.tuples(st.booleans(), st.one_of(st.just(0.0), st.floats(-1e6, 1e6))), min_size=1, max_size=40
)
confidences = st.floats(0.01, 0.999)


def played(game):
    return np.array([world for world, _ in game]), np.array([odds for _, odds in game])


def summary(found):
    return (found.point, found.standard_error, found.interval.low, found.interval.high)


@given(games, confidences)
def test_advantage_lies_in_its_interval_and_that_between_minus_one_and_one(game, confidence):
    found = advantage(*played(game), confidence)
    slack = 1e-12
    assert -1 <= found.interval.low <= found.point + slack
    assert found.point - slack <= found.interval.high <= 1
    assert found.wins + found.losses + found.ties == len(game)


@given(games, confidences)
def test_advantage_does_not_know_which_world_is_called_d(game, confidence):
    worlds, log_odds = played(game)
    one, other = advantage(worlds, log_odds, confidence), advantage(~worlds, -log_odds, confidence)
    assert summary(one) == pytest.approx(summary(other), abs=1e-12)
    assert (one.wins, one.losses) == (other.wins, other.losses)


@given(games)
def test_exchanging_the_worlds_alone_negates_the_advantage(game):
    worlds, log_odds = played(game)
    one, other = advantage(worlds, log_odds, 0.9), advantage(~worlds, log_odds, 0.9)
    expected = (-one.point, one.standard_error, -one.interval.high, -one.interval.low)
    assert summary(other) == pytest.approx(expected, abs=1e-12)


# delta', and the paper's estimators.


def test_delta_prime_counts_trials_on_d_above_epsilon_alone():
    worlds = np.array([True, True, True, True, False])
    frequency = delta_prime(worlds, np.array([2.0, 2.5, 1.9, -7.0, 9.0]), 2.0, 0.95)
    assert (frequency.count, frequency.trials, frequency.point) == (1, 4, 0.25)
    assert frequency.interval == clopper_pearson(1, 4, 0.95)


def test_delta_prime_takes_an_epsilon_for_every_trial():
    worlds = np.array([True, True, True, False])
    allowed = np.array([3.0, 1.0, np.inf, 0.0])
    assert delta_prime(worlds, np.full(4, 2.0), allowed, 0.95).count == 1
    with pytest.raises(InputError, match="at least 0"):
        delta_prime(worlds, np.full(4, 2.0), -allowed, 0.95)


def test_delta_prime_estimates_the_tail_of_the_privacy_loss_which_exceeds_delta():
    mu, trials = 0.6535891631872568, 200_000
    worlds, log_odds = gaussian_game(np.random.default_rng(3), 1, trials, mu)
    epsilon = gaussian.epsilon(mu, DELTA)
    interval = delta_prime(worlds, log_odds[0], epsilon, 0.9999).interval
    assert interval.low < 1 - PHI(epsilon / mu - mu / 2) < interval.high
    assert interval.low > 2 * DELTA


def test_epsilon_from_sensitivities_converts_the_trial_with_the_largest_ratio():
    sensitivities = np.array([[3.0, 0.0, 4.0], [1.0, 1.0, 1.0]])
    noise_std = np.array([[2.0, 0.0, 2.0], [4.0, 4.0, 4.0]])
    np.testing.assert_allclose(trial_mu(sensitivities, noise_std), [2.5, np.sqrt(3) / 4])
    found = epsilon_from_sensitivities(sensitivities, noise_std, DELTA, gaussian.epsilon)
    assert gaussian.delta(2.5, found) == pytest.approx(DELTA, rel=1e-9)

    def as_given(mu, delta):
        return 100 * mu + delta

    assert epsilon_from_sensitivities(sensitivities, noise_std, DELTA, as_given) == 250.01


def test_a_difference_without_noise_is_an_infinite_epsilon():
    bare = np.array([[1.0, 1.0]]), np.array([[1.0, 0.0]])
    assert epsilon_from_sensitivities(*bare, DELTA, gaussian.epsilon) == np.inf
    predicted = predict(*bare)
    assert (predicted.mu, predicted.advantage, predicted.deterministic) == (np.inf, 1.0, True)


def test_noise_scaled_to_the_sensitivity_makes_its_epsilon_a_tautology():
    sensitivities = np.random.default_rng(0).uniform(0.1, 3, (50, 30))
    found = epsilon_from_sensitivities(
        sensitivities, 8.380227 * sensitivities, DELTA, gaussian.epsilon
    )
    assert found == pytest.approx(gaussian.epsilon(np.sqrt(30) / 8.380227, DELTA), rel=1e-12)


def test_epsilon_from_belief_is_the_log_odds_of_the_surest_trial_on_d():
    worlds = np.array([True, True, False])
    beliefs = np.array([0.75, 0.9, 0.999])
    found = epsilon_from_belief(worlds, np.log(beliefs / (1 - beliefs)))
    assert found == pytest.approx(np.log(9), rel=1e-12)
    assert epsilon_from_belief(worlds, np.array([-1.0, -2.0, 3.0])) == 0


def test_epsilon_from_belief_grows_with_the_number_of_trials_beyond_epsilon():
    mu = 0.6535891631872568
    worlds, log_odds = gaussian_game(np.random.default_rng(0), 1, 100_000, mu)
    few, many = (epsilon_from_belief(worlds[:n], log_odds[0, :n]) for n in (20, 100_000))
    assert few < gaussian.epsilon(mu, DELTA) < 2 < many


@pytest.mark.parametrize(("epsilon", "delta"), [(2.197, 0.01), (0.08, 0.001), (4.6, 1e-6)])
def test_epsilon_from_advantage_inverts_theorem_2(epsilon, delta):
    theorem2 = 2 * PHI(epsilon / (2 * np.sqrt(2 * np.log(1.25 / delta)))) - 1
    assert epsilon_from_advantage(theorem2, delta) == pytest.approx(epsilon, rel=1e-12)


def test_epsilon_from_advantage_at_the_ends():
    assert epsilon_from_advantage(0.276, 0.01) == pytest.approx(2.197, abs=5e-3)
    assert [epsilon_from_advantage(value, DELTA) for value in (-1.0, -0.2, 0.0)] == [0, 0, 0]
    assert epsilon_from_advantage(1.0, DELTA) == np.inf


# Bad input.

BITS, ODDS = np.array([True, False]), np.array([1.0, -1.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: advantage(BITS, ODDS, 1.0), "confidence is 1.0"),
        (lambda: advantage(BITS, ODDS[:1], 0.9), "give both as \\[trials\\]"),
        (lambda: advantage(BITS[:0], ODDS[:0], 0.9), "give both as \\[trials\\]"),
        (lambda: advantage(BITS, np.array([np.nan, 1]), 0.9), "a model diverged"),
        (lambda: delta_prime(BITS, ODDS, -1.0, 0.9), "epsilon is -1.0"),
        (lambda: delta_prime(~BITS & False, ODDS, 1.0, 0.9), "no trial was trained on D"),
        (lambda: epsilon_from_belief(~BITS & False, ODDS), "no trial was trained on D"),
        (lambda: epsilon_from_advantage(1.1, DELTA), "the advantage is 1.1"),
        (lambda: epsilon_from_advantage(0.5, 0.0), "delta is 0.0"),
    ],
)
def test_impossible_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
