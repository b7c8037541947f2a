"""Estimators agree with closed forms and published numbers, and are wrong as rarely as they say.

Statements about frequencies are checked over repeated games from a fixed seed: a count of repeats
is held against the binomial distribution that it must follow, at a tail of 1e-4.
"""

from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from adversaries.estimators import (
    Advantage,
    advantage,
    delta_prime,
    epsilon_from_advantage,
    epsilon_from_belief,
    epsilon_from_sensitivities,
)
from adversaries.forecast import log_odds_fit, predict, simulate, simulated_fit, trial_mu
from adversaries.intervals import clopper_pearson
from adversaries.gaussian_bounds import gaussian_bound
from adversaries.lower_bounds import (
    LOWER_BOUNDS,
    LowerBound,
    clopper_pearson_bound,
    gaussian_bound,
    lower_bounds,
)
from fedsim import gaussian
from fedsim.accounting import PLD
from fedsim.errors import InputError
from fedsim.mechanism import Mechanism, Neighbouring

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Rng = np.random.Generator

DELTA = 0.01
REPEATS = 2000
PHI = NormalDist().cdf


def balanced(trials: int) -> Bools:
    return np.arange(trials) % 2 == 0


def gaussian_game(rng: Rng, repeats: int, trials: int, mu: float) -> tuple[Bools, Floats]:
    """Log-odds [repeats, trials] of a Gaussian mechanism; under mu = 0 both worlds are N(0, 1)."""
    worlds = balanced(trials)
    mean = np.where(worlds, 0.5, -0.5) * mu**2
    return worlds, mean + (mu or 1.0) * rng.standard_normal((repeats, trials))


def rng_of(seed: int) -> Rng:
    return np.random.default_rng(seed)


def decisions(true: int, trials: int, false: int, others: int) -> tuple[Bools, Floats]:
    """A game with so many decisions for D in trials on D, and in the others."""
    worlds = np.arange(trials + others) < trials
    for_d = np.concatenate([np.arange(trials) < true, np.arange(others) < false])
    return worlds, np.where(for_d, 1.0, -1.0)


def often_at_most(count: int, repeats: int, probability: float) -> bool:
    return bool(stats.binom.sf(count - 1, repeats, probability) > 1e-4)


def often_exactly(count: int, repeats: int, probability: float) -> bool:
    at_least = stats.binom.cdf(count, repeats, probability) > 1e-4
    return often_at_most(count, repeats, probability) and bool(at_least)


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
def test_the_papers_runs_on_d_alone(repetitions: int, wins: int, sure: float) -> None:
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
def test_the_papers_runs_agree_with_theory(repetitions: int, wins: int, mu: float) -> None:
    """MNIST at rho_beta .9: noise scaled to LS, and to 2C with the recorded RMS LS of 4.38."""
    worlds, log_odds = np.ones(repetitions, bool), np.ones(repetitions)
    log_odds[wins:] = -1
    interval = advantage(worlds, log_odds, 0.95).interval
    assert interval.low < 2 * PHI(mu / 2) - 1 < interval.high


def test_advantage_is_tpr_minus_fpr_whatever_the_share_of_each_world() -> None:
    found = advantage(*decisions(true=30, trials=40, false=2, others=10), 0.95)
    assert found.point == pytest.approx(30 / 40 - 2 / 10)
    variance = 0.75 * 0.25 / 40 + 0.2 * 0.8 / 10
    assert found.standard_error == pytest.approx(np.sqrt(variance))
    assert (found.wins, found.losses) == (38, 12)


def test_a_tie_is_neither_won_nor_lost_and_widens_the_interval_both_ways() -> None:
    worlds = balanced(100)
    without = np.where(worlds, 1.0, -1.0)
    with_ties = without.copy()
    with_ties[:20] = 0.0
    sure, unsure = advantage(worlds, without, 0.95), advantage(worlds, with_ties, 0.95)
    assert (unsure.wins, unsure.losses, unsure.ties) == (80, 0, 20)
    assert (sure.point, unsure.point) == (1.0, 0.8)
    assert unsure.interval.low == pytest.approx(2 * clopper_pearson(80, 100, 0.95).low - 1)
    assert unsure.interval.high == 1.0


def test_worlds_that_differ_by_one_trial_widen_the_interval_by_one_over_t() -> None:
    found = advantage(*decisions(true=40, trials=51, false=15, others=50), 0.95).interval
    exact = stats.binomtest(40 + 35, 101).proportion_ci(0.95, method="exact")
    assert found.low == pytest.approx(2 * exact.low - 1 - 1 / 101, rel=1e-9)
    assert found.high == pytest.approx(2 * exact.high - 1 + 1 / 101, rel=1e-9)


def test_worlds_of_different_size_get_an_interval_each_at_half_the_error() -> None:
    found = advantage(*decisions(true=40, trials=50, false=1, others=10), 0.95).interval
    true, false = (
        stats.binomtest(count, trials).proportion_ci(0.975, method="exact")
        for count, trials in ((40, 50), (1, 10))
    )
    assert found.low == pytest.approx(true.low - false.high, rel=1e-9)
    assert found.high == pytest.approx(true.high - false.low, rel=1e-9)


@pytest.mark.parametrize(("on_d", "on_d_prime"), [(60, 60), (61, 60), (90, 30), (120, 0)], ids=str)
@pytest.mark.parametrize("ties", [0.0, 0.1])
def test_the_advantage_interval_covers_the_truth(on_d: int, on_d_prime: int, ties: float) -> None:
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


def played(game: list[tuple[bool, float]]) -> tuple[Bools, Floats]:
    return np.array([world for world, _ in game]), np.array([odds for _, odds in game])


def summary(found: Advantage) -> tuple[float, ...]:
    return (found.point, found.standard_error, found.interval.low, found.interval.high)


@settings(deadline=None)
@given(games, confidences)
def test_advantage_lies_in_its_interval_and_that_between_minus_one_and_one(
    game: list[tuple[bool, float]], confidence: float
) -> None:
    found = advantage(*played(game), confidence)
    slack = 1e-12
    assert -1 <= found.interval.low <= found.point + slack
    assert found.point - slack <= found.interval.high <= 1
    assert found.wins + found.losses + found.ties == len(game)


@settings(deadline=None)
@given(games, confidences)
def test_advantage_does_not_know_which_world_is_called_d(
    game: list[tuple[bool, float]], confidence: float
) -> None:
    worlds, log_odds = played(game)
    one, other = advantage(worlds, log_odds, confidence), advantage(~worlds, -log_odds, confidence)
    assert summary(one) == pytest.approx(summary(other), abs=1e-12)
    assert (one.wins, one.losses) == (other.wins, other.losses)


@settings(deadline=None)
@given(games)
def test_exchanging_the_worlds_alone_negates_the_advantage(game: list[tuple[bool, float]]) -> None:
    worlds, log_odds = played(game)
    one, other = advantage(worlds, log_odds, 0.9), advantage(~worlds, log_odds, 0.9)
    expected = (-one.point, one.standard_error, -one.interval.high, -one.interval.low)
    assert summary(other) == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(0, 60), st.floats(0.01, 0.9999))
def test_clopper_pearson_is_scipys_exact_interval(
    successes: int, failures: int, confidence: float
) -> None:
    trials = successes + failures
    found = clopper_pearson(successes, trials, confidence)
    if trials == 0:
        assert (found.low, found.high) == (0, 1)
        return
    exact = stats.binomtest(successes, trials).proportion_ci(confidence, method="exact")
    # scipy's own root is found to 2e-12 only.
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high), rel=1e-9, abs=4e-12)


# delta', and the paper's estimators.


def test_delta_prime_counts_trials_on_d_above_epsilon_alone() -> None:
    worlds = np.array([True, True, True, True, False])
    frequency = delta_prime(worlds, np.array([2.0, 2.5, 1.9, -7.0, 9.0]), 2.0, 0.95)
    assert (frequency.count, frequency.trials, frequency.point) == (1, 4, 0.25)
    assert frequency.interval == clopper_pearson(1, 4, 0.95)


def test_delta_prime_takes_an_epsilon_for_every_trial() -> None:
    worlds = np.array([True, True, True, False])
    allowed = np.array([3.0, 1.0, np.inf, 0.0])
    assert delta_prime(worlds, np.full(4, 2.0), allowed, 0.95).count == 1
    with pytest.raises(InputError, match="at least 0"):
        delta_prime(worlds, np.full(4, 2.0), -allowed, 0.95)


def test_delta_prime_estimates_the_tail_of_the_privacy_loss_which_exceeds_delta() -> None:
    mu, trials = 0.6535891631872568, 200_000
    worlds, log_odds = gaussian_game(np.random.default_rng(3), 1, trials, mu)
    epsilon = gaussian.epsilon(mu, DELTA)
    interval = delta_prime(worlds, log_odds[0], epsilon, 0.9999).interval
    assert interval.low < 1 - PHI(epsilon / mu - mu / 2) < interval.high
    assert interval.low > 2 * DELTA


def test_epsilon_from_sensitivities_converts_the_trial_with_the_largest_ratio() -> None:
    sensitivities = np.array([[3.0, 0.0, 4.0], [1.0, 1.0, 1.0]])
    noise_std = np.array([[2.0, 0.0, 2.0], [4.0, 4.0, 4.0]])
    np.testing.assert_allclose(trial_mu(sensitivities, noise_std), [2.5, np.sqrt(3) / 4])
    found = epsilon_from_sensitivities(sensitivities, noise_std, DELTA, gaussian.epsilon)
    assert gaussian.delta(2.5, found) == pytest.approx(DELTA, rel=1e-9)

    def as_given(mu: float, delta: float) -> float:
        return 100 * mu + delta

    assert epsilon_from_sensitivities(sensitivities, noise_std, DELTA, as_given) == 250.01


def test_a_difference_without_noise_is_an_infinite_epsilon() -> None:
    bare = np.array([[1.0, 1.0]]), np.array([[1.0, 0.0]])
    assert epsilon_from_sensitivities(*bare, DELTA, gaussian.epsilon) == np.inf
    predicted = predict(*bare)
    assert (predicted.mu, predicted.advantage, predicted.deterministic) == (np.inf, 1.0, True)


def test_noise_scaled_to_the_sensitivity_makes_its_epsilon_a_tautology() -> None:
    sensitivities = np.random.default_rng(0).uniform(0.1, 3, (50, 30))
    found = epsilon_from_sensitivities(
        sensitivities, 8.380227 * sensitivities, DELTA, gaussian.epsilon
    )
    assert found == pytest.approx(gaussian.epsilon(np.sqrt(30) / 8.380227, DELTA), rel=1e-12)


def test_epsilon_from_belief_is_the_log_odds_of_the_surest_trial_on_d() -> None:
    worlds = np.array([True, True, False])
    beliefs = np.array([0.75, 0.9, 0.999])
    found = epsilon_from_belief(worlds, np.log(beliefs / (1 - beliefs)))
    assert found == pytest.approx(np.log(9), rel=1e-12)
    assert epsilon_from_belief(worlds, np.array([-1.0, -2.0, 3.0])) == 0


def test_epsilon_from_belief_grows_with_the_number_of_trials_beyond_epsilon() -> None:
    mu = 0.6535891631872568
    worlds, log_odds = gaussian_game(np.random.default_rng(0), 1, 100_000, mu)
    few, many = (epsilon_from_belief(worlds[:n], log_odds[0, :n]) for n in (20, 100_000))
    assert few < gaussian.epsilon(mu, DELTA) < 2 < many


@pytest.mark.parametrize(("epsilon", "delta"), [(2.197, 0.01), (0.08, 0.001), (4.6, 1e-6)])
def test_epsilon_from_advantage_inverts_theorem_2(epsilon: float, delta: float) -> None:
    theorem2 = 2 * PHI(epsilon / (2 * np.sqrt(2 * np.log(1.25 / delta)))) - 1
    assert epsilon_from_advantage(theorem2, delta) == pytest.approx(epsilon, rel=1e-12)


def test_epsilon_from_advantage_at_the_ends() -> None:
    assert epsilon_from_advantage(0.276, 0.01) == pytest.approx(2.197, abs=5e-3)
    assert [epsilon_from_advantage(value, DELTA) for value in (-1.0, -0.2, 0.0)] == [0, 0, 0]
    assert epsilon_from_advantage(1.0, DELTA) == np.inf


# Lower bounds.


@pytest.mark.parametrize(
    ("true", "false", "trials", "p1_lower", "p0_upper", "epsilon"),
    [
        (500, 0, 500, 0.9894593118113242, 0.010540688188675817, 4.541915810224077),
        (495, 5, 500, 0.9719584388674158, 0.028041561132584186, 3.5456253093636843),
        (450, 50, 500, 0.8605315736982331, 0.13946842630176698, 1.819712066358845),
        (100, 0, 100, 0.948395970375896, 0.051604029624104, 2.9111723423878897),
    ],
)
def test_clopper_pearson_bound_of_jagielski_et_al(
    true: int, false: int, trials: int, p1_lower: float, p0_upper: float, epsilon: float
) -> None:
    """From the authors' code; the first row is also asserted in tensorflow/privacy's audit_test."""
    bound = clopper_pearson_bound(*decisions(true, trials, false, trials), 0, 0.99)
    assert bound.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert bound.details["true_positive_rate_low"] == pytest.approx(p1_lower, rel=1e-9)
    assert bound.details["false_positive_rate_high"] == pytest.approx(p0_upper, rel=1e-9)


def test_clopper_pearson_bound_takes_the_better_direction() -> None:
    """Few false alarms prove more through TPR/FPR, few misses through TNR/FNR."""
    for true, false in ((300, 0), (500, 200)):
        limits = [
            stats.beta.ppf(0.005, true, 501 - true),
            stats.beta.ppf(0.995, false + 1, 500 - false),
        ]
        directions = [
            np.log((limits[0] - DELTA) / limits[1]),
            np.log((1 - limits[1] - DELTA) / (1 - limits[0])),
        ]
        bound = clopper_pearson_bound(*decisions(true, 500, false, 500), DELTA, 0.99)
        assert bound.epsilon == pytest.approx(max(directions), rel=1e-9)
        assert directions[0] > directions[1] if true == 300 else directions[0] < directions[1]


def test_ties_decide_d_prime_and_prove_nothing() -> None:
    worlds = balanced(1000)
    bound = clopper_pearson_bound(worlds, np.zeros(1000), 0, 0.95)
    assert bound.epsilon == 0
    half = np.where(worlds, np.where(np.arange(1000) < 500, 1.0, 0.0), 0.0)
    as_decided = clopper_pearson_bound(worlds, np.where(half > 0, 1.0, -1.0), 0, 0.95)
    assert clopper_pearson_bound(worlds, half, 0, 0.95) == as_decided


def exceedances(
    bound: Callable[[Bools, Floats, float, float], LowerBound],
    worlds: Bools,
    log_odds: Floats,
    delta: float,
    epsilon: float,
) -> int:
    """In how many games [repeats, T] the 95% lower bound claims more than epsilon."""
    return sum(bound(worlds, row, delta, 0.95).epsilon > epsilon for row in log_odds)


@pytest.mark.parametrize("name", LOWER_BOUNDS)
@pytest.mark.parametrize("delta", [1e-6, DELTA])
def test_identical_worlds_rarely_prove_anything(name: str, delta: float) -> None:
    worlds, log_odds = gaussian_game(np.random.default_rng(11), REPEATS, 60, mu=0)
    count = exceedances(LOWER_BOUNDS[name], worlds, log_odds, delta, 0)
    assert often_at_most(count, REPEATS, 0.05)


def test_identical_worlds_with_many_ties_rarely_prove_anything() -> None:
    log_odds = np.random.default_rng(5).choice([-1.0, 0.0, 1.0], (REPEATS, 100), p=[0.1, 0.7, 0.2])
    count = exceedances(clopper_pearson_bound, balanced(100), log_odds, 0, 0)
    assert often_at_most(count, REPEATS, 0.05)


@pytest.mark.parametrize("name", LOWER_BOUNDS)
@pytest.mark.parametrize("mu", [0.6535891631872568, 2.0])
def test_a_gaussian_game_rarely_proves_more_than_its_epsilon(name: str, mu: float) -> None:
    worlds, log_odds = gaussian_game(np.random.default_rng(7), REPEATS, 60, mu)
    epsilon = gaussian.epsilon(mu, DELTA)
    count = exceedances(LOWER_BOUNDS[name], worlds, log_odds, DELTA, epsilon)
    assert often_at_most(count, REPEATS, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOWER_BOUNDS)
@pytest.mark.parametrize("mu", [0.0, 0.3426508180245408, 0.6535891631872568, 3.0])
@pytest.mark.parametrize("trials", [8, 1001])
def test_no_lower_bound_is_wrong_more_often_than_it_says(name: str, mu: float, trials: int) -> None:
    repeats, delta = 10_000, 1e-3
    worlds, log_odds = gaussian_game(np.random.default_rng(trials), repeats, trials, mu)
    epsilon = gaussian.epsilon(mu, delta)
    count = exceedances(LOWER_BOUNDS[name], worlds, log_odds, delta, epsilon)
    assert often_at_most(count, repeats, 0.05)


@pytest.mark.parametrize(
    ("mu", "on_d", "confidence"),
    [(0.0, 30, 0.9), (0.6535891631872568, 30, 0.9), (2.0, 10, 0.9), (0.0, 30, 0.1)],
)
def test_the_gaussian_limit_of_mu_is_exact(mu: float, on_d: int, confidence: float) -> None:
    """Wrong as often as it says, no less: also where the worlds are unequally many."""
    _, noise = gaussian_game(np.random.default_rng(on_d), REPEATS, 60, mu=0)
    worlds = np.arange(60) < on_d
    log_odds = np.where(worlds, mu**2, 0.0) + (mu or 1.0) * noise
    bounds = [gaussian_bound(worlds, row, DELTA, confidence) for row in log_odds]
    count = sum(bound.details["mu_low"] > mu for bound in bounds)
    assert often_exactly(count, REPEATS, 1 - confidence)


def test_clopper_pearson_covers_randomised_response_and_comes_close() -> None:
    """Randomised response is the mechanism whose decisions use up the whole of epsilon."""
    epsilon, trials = 1.0, 2000
    worlds = balanced(trials)
    truthful = np.random.default_rng(1).random((REPEATS, trials)) < 1 / (1 + np.exp(-epsilon))
    log_odds = epsilon * np.where(truthful == worlds, 1, -1)
    bounds = [clopper_pearson_bound(worlds, row, 0, 0.95).epsilon for row in log_odds]
    assert often_at_most(sum(bound > epsilon for bound in bounds), REPEATS, 0.05)
    assert np.median(bounds) > 0.8 * epsilon


def test_with_many_trials_the_gaussian_bound_nearly_reaches_epsilon() -> None:
    mu = 0.6535891631872568
    worlds, log_odds = gaussian_game(np.random.default_rng(2), 1, 100_000, mu)
    bound = gaussian_bound(worlds, log_odds[0], DELTA, 0.95)
    assert 0.96 < bound.epsilon / gaussian.epsilon(mu, DELTA) <= 1


@settings(deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(-100, 100))
def test_the_gaussian_bound_does_not_trust_the_claimed_noise(scale: float, shift: float) -> None:
    """A wrong claim for sigma scales Lambda, a prior shifts it; neither moves the bound."""
    worlds, log_odds = gaussian_game(np.random.default_rng(4), 1, 40, 2.0)
    plain = gaussian_bound(worlds, log_odds[0], DELTA, 0.95)
    other = gaussian_bound(worlds, scale * log_odds[0] + shift, DELTA, 0.95)
    assert plain.epsilon > 0.5
    assert other.epsilon == pytest.approx(plain.epsilon, rel=1e-6)


def test_the_gaussian_limit_inverts_scipys_noncentral_t() -> None:
    worlds, log_odds = gaussian_game(np.random.default_rng(6), 1, 30, 2.0)
    limit = gaussian_bound(worlds, log_odds[0], DELTA, 0.95).details["mu_low"]
    statistic = stats.ttest_ind(log_odds[0, worlds], log_odds[0, ~worlds]).statistic
    noncentrality = limit / np.sqrt(1 / 15 + 1 / 15)
    assert stats.nct.sf(statistic, 28, noncentrality) == pytest.approx(0.05, rel=1e-9)


@pytest.mark.parametrize("trials", [4, 100, 200_000])
@pytest.mark.parametrize("mu", [1.0, 30.0, 1e5])
@pytest.mark.parametrize("confidence", [0.05, 0.95, 1 - 1e-9])
def test_the_gaussian_bound_is_a_number_at_every_size(
    trials: int, mu: float, confidence: float
) -> None:
    worlds, log_odds = gaussian_game(np.random.default_rng(8), 1, trials, mu)
    bound = gaussian_bound(worlds, log_odds[0], DELTA, confidence)
    assert 0 <= bound.epsilon < np.inf
    if confidence >= 0.95:
        assert bound.details["mu_low"] < mu


@pytest.mark.parametrize(
    ("log_odds", "reason"),
    [
        ([1.0, 2.0, 3.0, -1.0], "fewer than two trials of a world"),
        ([0.1, 0.1, 0.1, 0.1, 0.1, 0.1], "log-odds that do not vary"),
        ([0.1, 0.1, 0.1, 0.2, 0.2, 0.2], "log-odds that do not vary"),
        ([1.0, np.inf, 2.0, -1.0, -2.0, -3.0], "infinite log-odds: a step without noise"),
    ],
)
def test_where_the_gaussian_model_cannot_hold_the_bound_says_so(
    log_odds: list[float], reason: str
) -> None:
    worlds = np.arange(len(log_odds)) < 3
    bound = gaussian_bound(worlds, np.array(log_odds), DELTA, 0.95)
    assert (bound.epsilon, bound.reason) == (0, reason)


@pytest.mark.parametrize("name", LOWER_BOUNDS)
def test_one_world_proves_nothing_and_says_so(name: str) -> None:
    for worlds in (np.ones(100, bool), np.zeros(100, bool)):
        log_odds = np.random.default_rng(0).normal(9, 1, 100)
        bound = LOWER_BOUNDS[name](worlds, log_odds, DELTA, 0.95)
        assert bound.epsilon == 0
        assert bound.reason


# Predictions.


@pytest.mark.parametrize(
    ("mu", "expected"),
    [(0.6535891631872568, 0.2561767), (0.3426508180245408, 0.13603209767419933)],
)
def test_under_noise_scaled_to_the_sensitivity_only_the_multiplier_counts(
    mu: float, expected: float
) -> None:
    sensitivities = np.random.default_rng(0).uniform(0.01, 3, (20, 30))
    predicted = predict(sensitivities, np.sqrt(30) / mu * sensitivities)
    assert predicted.mu == pytest.approx(mu, rel=1e-12)
    assert predicted.advantage == pytest.approx(expected, abs=1e-7)
    assert predicted.deterministic


def test_a_prediction_from_random_sensitivities_averages_trials_and_says_so() -> None:
    predicted = predict(np.array([[3.0, 4.0], [0.0, 0.0]]), np.full((2, 2), 5.0))
    np.testing.assert_allclose(predicted.trial_mu, [1.0, 0.0])
    assert predicted.mu == pytest.approx(np.sqrt(0.5))
    assert predicted.advantage == pytest.approx((2 * PHI(0.5) - 1) / 2)
    assert not predicted.deterministic


def test_trials_are_alike_up_to_the_rounding_of_float32_gradients() -> None:
    alike, unlike = (np.array([[1.0], [1 + gap]]) for gap in (1e-7, 1e-5))
    assert predict(alike, np.ones((2, 1))).deterministic
    assert not predict(unlike, np.ones((2, 1))).deterministic


def fit_game(trials: int = 2000) -> tuple[Bools, Floats, Floats]:
    rng = np.random.default_rng(9)
    worlds, mu = balanced(trials), rng.uniform(0.2, 2, trials)
    log_odds = np.where(worlds, 0.5, -0.5) * mu**2 + mu * rng.standard_normal(trials)
    return worlds, log_odds, mu


@pytest.mark.parametrize("prior", [0.5, 0.9])
def test_log_odds_fit_accepts_what_theory_predicts(prior: float) -> None:
    worlds, log_odds, mu = fit_game()
    fit = log_odds_fit(worlds, log_odds + np.log(prior / (1 - prior)), mu, prior)
    for world, sign, of_world in ((worlds, 1, "world_d"), (~worlds, -1, "world_d_prime")):
        found = fit[of_world]
        standardised = (log_odds - sign * mu**2 / 2)[world] / mu[world]
        assert found is not None
        assert found["statistic"] == pytest.approx(stats.kstest(standardised, "norm").statistic)
        assert found["p_value"] > 0.01
        assert found["trials"] == 1000


@pytest.mark.parametrize("wrong", ["scale", "shift", "world", "prior"])
def test_log_odds_fit_rejects_a_broken_mechanism(wrong: str) -> None:
    worlds, log_odds, mu = fit_game()
    broken = {
        "scale": (worlds, 1.3 * log_odds, mu, 0.5),
        "shift": (worlds, log_odds + 0.5, mu, 0.5),
        "world": (~worlds, log_odds, mu, 0.5),
        "prior": (worlds, log_odds, mu, 0.7),
    }
    for found in log_odds_fit(*broken[wrong]).values():
        assert found is not None
        assert found["p_value"] < 1e-3


def test_log_odds_fit_leaves_out_trials_without_a_density() -> None:
    worlds, log_odds, mu = fit_game(200)
    mu[:20], mu[20:40], mu[~worlds] = 0.0, np.inf, 0.0
    fit = log_odds_fit(worlds, log_odds, mu)
    assert fit["world_d_prime"] is None
    assert fit["world_d"] == log_odds_fit(worlds[40:], log_odds[40:], mu[40:])["world_d"]


# Sampled steps.


def ratios_of(steps: int, trials: int = 1, **norms: float) -> dict[str, Floats]:
    """Norms that are the same in every trial and step, under noise of deviation 1."""
    present, absent = norms["present"], norms.get("absent", 0.0)
    values = {
        "present_norms": present,
        "absent_norms": absent,
        "sensitivities": norms.get("apart", abs(present - absent)),
        "noise_std": 1.0,
    }
    return {name: np.full((trials, steps), value) for name, value in values.items()}


@pytest.mark.parametrize(("q", "z", "steps"), [(0.1, 1.0, 50), (0.02, 0.6, 100), (0.5, 3.0, 20)])
def test_simulated_sampled_steps_reach_the_total_variation_of_the_mechanism(
    q: float, z: float, steps: int
) -> None:
    played = simulate(**ratios_of(steps, present=1 / z), sampling_rate=q, generator=rng_of(1))
    exact = PLD.delta(Mechanism.alike(z, steps, q), 0.0)
    assert abs(played.advantage - exact) < 4 * played.standard_error < 0.01
    assert played.deterministic


def test_the_example_of_the_design_is_won_with_an_advantage_of_about_a_third() -> None:
    played = simulate(**ratios_of(50, present=1.0), sampling_rate=0.1, generator=rng_of(2))
    assert played.advantage == pytest.approx(0.32, abs=0.006)


def test_simulated_replacement_by_the_opposite_reaches_its_total_variation() -> None:
    z = 1.5  # of the sensitivity 2C, which opposite gradients of norm C use up
    norms = ratios_of(20, present=0.5 / z, absent=0.5 / z, apart=1 / z)
    played = simulate(**norms, sampling_rate=0.3, generator=rng_of(3))
    exact = PLD.delta(Mechanism.alike(z, 20, 0.3, Neighbouring.REPLACE), 0.0)
    assert abs(played.advantage - exact) < 4 * played.standard_error < 0.01


@pytest.mark.parametrize(("present", "absent", "apart"), [(1.0, 0.0, 1.0), (0.7, 0.4, 0.5)])
@pytest.mark.parametrize("prior", [0.5, 0.8])
def test_simulated_steps_without_sampling_follow_the_closed_form(
    present: float, absent: float, apart: float, prior: float
) -> None:
    norms = ratios_of(9, present=present, absent=absent, apart=apart)
    played = simulate(**norms, sampling_rate=1.0, generator=rng_of(4), prior=prior)
    predicted = predict(norms["sensitivities"], norms["noise_std"], prior)
    assert abs(played.advantage - predicted.advantage) < 4 * played.standard_error < 0.02
    mu = 3 * apart
    for sample, sign in ((played.world_d, 1), (played.world_d_prime, -1)):
        assert stats.kstest(sample, stats.norm(sign * mu**2 / 2, mu).cdf).pvalue > 1e-4


@pytest.mark.parametrize("replaced", [False, True])
def test_simulated_log_odds_are_those_of_gradients_and_noise_in_many_dimensions(
    replaced: bool,
) -> None:
    rng, q, steps, repeats, std = rng_of(5), 0.3, 4, 20_000, 1.3
    present, absent = rng.standard_normal((2, steps, 6)) / 2
    absent *= replaced
    norms = [np.linalg.norm(each, axis=-1)[None] for each in (present, absent, present - absent)]
    played = simulate(*norms, np.full((1, steps), std), q, rng_of(6))
    for sample, used in ((played.world_d, present), (played.world_d_prime, absent)):
        joined = rng.random((repeats, steps, 1)) < q
        released = joined * used + std * rng.standard_normal((repeats, steps, 6))
        density = [
            (1 - q) * np.exp(-(released**2).sum(-1) / (2 * std**2))
            + q * np.exp(-((released - mean) ** 2).sum(-1) / (2 * std**2))
            for mean in (present, absent)
        ]
        log_odds = np.log(density[0] / density[1]).sum(axis=1)
        assert stats.ks_2samp(log_odds, sample).pvalue > 1e-4


def test_a_simulation_repeats_with_its_generator_and_knows_trials_that_differ() -> None:
    norms = ratios_of(3, trials=2, present=1.0)
    once, again = (simulate(**norms, sampling_rate=0.5, generator=rng_of(7)) for _ in range(2))
    np.testing.assert_array_equal(once.world_d, again.world_d)
    norms["noise_std"][1] = 2.0
    assert not simulate(**norms, sampling_rate=0.5, generator=rng_of(7)).deterministic


def test_steps_without_a_gradient_say_nothing_even_without_noise() -> None:
    silent = np.zeros((2, 3))
    played = simulate(silent, silent, silent, silent, 0.5, rng_of(8))
    assert not played.world_d.any()
    assert not played.world_d_prime.any()
    assert (played.advantage, played.standard_error) == (0.0, 0.0)


def test_the_simulated_fit_does_not_cry_wolf() -> None:
    """Over games that follow their own simulation, p-values are uniform."""
    norms, rng = ratios_of(10, present=1.0), rng_of(9)
    worlds = np.arange(200) < 100
    p_values = []
    for _ in range(200):
        truth = simulate(**norms, sampling_rate=0.1, generator=rng, games=100)
        theory = simulate(**norms, sampling_rate=0.1, generator=rng, games=20_000)
        fit = simulated_fit(worlds, np.concatenate([truth.world_d, truth.world_d_prime]), theory)
        p_values.append([found["p_value"] for found in fit.values() if found])
    for world in np.transpose(p_values):
        assert stats.kstest(world, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("wrong", ["signal", "sampling rate", "world", "prior", "unmixed"])
def test_the_simulated_fit_rejects_a_broken_mechanism(wrong: str) -> None:
    games = 4000

    def played(present: float = 1.0, q: float = 0.1) -> Floats:
        norms = ratios_of(30, present=present)
        game = simulate(**norms, sampling_rate=q, generator=rng_of(10), games=games)
        return np.concatenate([game.world_d, game.world_d_prime])

    broken = {
        "signal": lambda: played(present=1.3),
        "sampling rate": lambda: played(q=0.15),
        "world": lambda: np.roll(played(), games),
        "prior": lambda: played() + 0.3,
        "unmixed": lambda: 3 * played(),
    }
    worlds = np.arange(2 * games) < games
    theory = simulate(**ratios_of(30, present=1.0), sampling_rate=0.1, generator=rng_of(11))
    for log_odds, accepted in ((played(), True), (broken[wrong](), False)):
        for found in simulated_fit(worlds, log_odds, theory).values():
            assert found is not None
            assert (found["p_value"] > 1e-4) is accepted


def test_a_world_without_trials_has_no_simulated_fit() -> None:
    theory = simulate(**ratios_of(2, present=1.0), sampling_rate=0.5, generator=rng_of(12))
    assert simulated_fit(np.ones(5, bool), np.zeros(5), theory)["world_d_prime"] is None


def test_sampled_log_odds_are_not_normal_so_that_the_gaussian_bound_says_nothing() -> None:
    worlds = balanced(1000)
    log_odds = np.where(worlds, 9.0, -9.0) + rng_of(13).standard_normal(1000)
    bounds = lower_bounds(worlds, log_odds, DELTA, 0.95, "sampling")
    assert (bounds["gaussian"].epsilon, bounds["gaussian"].reason) == (0.0, "sampling")
    assert bounds["clopper_pearson"] == clopper_pearson_bound(worlds, log_odds, DELTA, 0.95)
    plain = lower_bounds(worlds, log_odds, DELTA, 0.95)
    assert plain == {
        name: bound(worlds, log_odds, DELTA, 0.95) for name, bound in LOWER_BOUNDS.items()
    }


# Bad input.

BITS, ODDS = np.array([True, False]), np.array([1.0, -1.0])
STEPS = np.ones((2, 3))


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
        (lambda: clopper_pearson_bound(BITS, ODDS, 1.0, 0.9), "delta is 1.0"),
        (lambda: gaussian_bound(BITS, ODDS, 0.0, 0.9), "delta is 0.0"),
        (lambda: gaussian_bound(BITS, ODDS, DELTA, 0.0), "confidence is 0.0"),
        (lambda: trial_mu(STEPS, STEPS[:1]), "give both as \\[trials, steps\\]"),
        (lambda: trial_mu(STEPS, -STEPS), "negative or not a number"),
        (lambda: predict(STEPS * np.nan, STEPS), "negative or not a number"),
        (lambda: simulate(STEPS, STEPS, STEPS, STEPS, 0.0, rng_of(0)), "sampling rate is 0.0"),
        (lambda: simulate(STEPS, STEPS, STEPS, 0 * STEPS, 0.5, rng_of(0)), "meets no noise"),
        (lambda: simulate(-STEPS, STEPS, STEPS, STEPS, 0.5, rng_of(0)), "negative"),
        (lambda: log_odds_fit(BITS, ODDS, np.ones(3)), "mu is \\(3,\\)"),
        (lambda: log_odds_fit(BITS, ODDS, 1.0, 1.0), "prior is 1.0"),
    ],
)
def test_impossible_input_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
