"""Lower bounds on epsilon agree with published numbers, and err as rarely as they say.

Statements about frequencies are checked over repeated games from a fixed seed: a count of repeats
is held against the binomial distribution that it must follow, at a tail of 1e-4.
"""

import math

import numpy as np
import pytest
from games import (
    balanced,
    decisions,
    gaussian_game,
    often_at_most,
    often_exactly,
    rng_of,
)
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from adversaries.bounds.gaussian_bounds import gaussian_bound
from adversaries.bounds.lower_bounds import (
    LOWER_BOUNDS,
    NOT_GAUSSIAN,
    MechanismKind,
    clopper_pearson_bound,
    clopper_pearson_split,
    lower_bounds,
)
from adversaries.errors import InputError
from adversaries.statistics import gaussian

DELTA = 0.01
REPEATS = 2000
QUICK = ("clopper_pearson", "gaussian")
"""Bounds of which thousands are quickly found."""


@pytest.mark.parametrize(
    ("true", "false", "trials", "p1_lower", "p0_upper", "epsilon"),
    [
        (500, 0, 500, 0.9894593118113242, 0.010540688188675817, 4.541915810224077),
        (495, 5, 500, 0.9719584388674158, 0.028041561132584186, 3.5456253093636843),
        (450, 50, 500, 0.8605315736982331, 0.13946842630176698, 1.819712066358845),
        (100, 0, 100, 0.948395970375896, 0.051604029624104, 2.9111723423878897),
    ],
)
def test_clopper_pearson_bound_of_jagielski_et_al(true, false, trials, p1_lower, p0_upper, epsilon):
    """From the authors' code; the first row is also asserted in tensorflow/privacy's audit_test."""
    bound = clopper_pearson_bound(*decisions(true, trials, false, trials), 0, 0.99)
    assert bound.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert bound.details["true_positive_rate_low"] == pytest.approx(p1_lower, rel=1e-9)
    assert bound.details["false_positive_rate_high"] == pytest.approx(p0_upper, rel=1e-9)


def test_clopper_pearson_bound_takes_the_better_direction():
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


def test_ties_decide_d_prime_and_prove_nothing():
    worlds = balanced(1000)
    bound = clopper_pearson_bound(worlds, np.zeros(1000), 0, 0.95)
    assert bound.epsilon == 0
    half = np.where(worlds, np.where(np.arange(1000) < 500, 1.0, 0.0), 0.0)
    as_decided = clopper_pearson_bound(worlds, np.where(half > 0, 1.0, -1.0), 0, 0.95)
    assert clopper_pearson_bound(worlds, half, 0, 0.95) == as_decided


def test_a_threshold_other_than_zero_is_as_good_as_a_shift():
    worlds, log_odds = gaussian_game(np.random.default_rng(3), 1, 200, 2.0)
    at_one = clopper_pearson_bound(worlds, log_odds[0], DELTA, 0.95, threshold=1.0)
    shifted = clopper_pearson_bound(worlds, log_odds[0] - 1.0, DELTA, 0.95)
    assert at_one.epsilon == shifted.epsilon
    assert at_one.method.endswith("threshold 1")


def test_a_split_judges_by_trials_that_had_no_part_in_the_choice():
    worlds, log_odds = gaussian_game(np.random.default_rng(9), 1, 400, 3.0)
    scores = log_odds[0]
    bound = clopper_pearson_split(worlds, scores, DELTA, 0.95)
    # Of each world every second trial, which of all trials are two in turn.
    judges = np.arange(400) % 4 >= 2
    threshold = bound.details["threshold"]
    judged = clopper_pearson_bound(worlds[judges], scores[judges], DELTA, 0.95, threshold)
    assert bound.epsilon == judged.epsilon > 0
    other = np.where(judges, 0.0, scores)
    assert clopper_pearson_split(worlds, other, DELTA, 0.95).details["threshold"] == threshold


def test_a_split_finds_where_the_worlds_differ():
    """Few trials on D stand out, far from 0."""
    worlds = balanced(2000)
    scores = np.random.default_rng(10).standard_normal(2000)
    scores[worlds & (np.arange(2000) % 10 < 2)] += 100
    assert clopper_pearson_split(worlds, scores, DELTA, 0.95).epsilon > 2
    assert clopper_pearson_bound(worlds, scores, DELTA, 0.95).epsilon < 0.5


@pytest.mark.parametrize("for_mu", [False, True])
def test_where_nothing_is_proven_a_split_takes_the_threshold_that_tells_most(for_mu):
    """Six of ten against four of ten on the choosing half, and ten against none on the other."""
    choosing = np.repeat([2.0, 1.0, 2.0, 1.0], [6, 4, 4, 6])
    scores = np.column_stack([choosing, np.repeat([2.0, 1.0], 10)]).ravel()
    scores[[-1, -3]] = 0.0, 3.0  # the lowest and the highest tell nothing
    bound = clopper_pearson_split(np.arange(40) < 20, scores, 0.0, 0.95, for_mu)
    assert bound.details["threshold"] == 1.0
    assert bound.epsilon > 0


def test_a_threshold_for_mu_proves_more_mu_than_one_for_epsilon_and_is_rarely_wrong():
    """At epsilon 4, and of identical worlds, 400 trials of which half are judged at 90 %."""

    def mu_low(bound):
        rates = bound.details
        limits = rates["true_positive_rate_low"], rates["false_positive_rate_high"]
        return float(np.subtract(*stats.norm.ppf(limits)))

    for epsilon in (0.0, 4.0):
        mu = gaussian.mu_of_epsilon(epsilon, 1e-5) if epsilon else 0.0
        worlds, scores = gaussian_game(rng_of(12), 400, 400, mu)
        found = {
            for_mu: np.array(
                [mu_low(clopper_pearson_split(worlds, row, 1e-5, 0.9, for_mu)) for row in scores]
            )
            for for_mu in (False, True)
        }
        assert often_at_most(int((found[True] > mu).sum()), 400, 0.1)
        if epsilon:
            by_epsilon, by_mu = (np.median(found[for_mu]) for for_mu in (False, True))
            assert by_epsilon * 1.1 < by_mu < mu


def test_a_threshold_for_mu_is_chosen_by_the_half_that_is_not_judged():
    worlds, log_odds = gaussian_game(rng_of(9), 1, 400, 3.0)
    judges = np.arange(400) % 4 >= 2
    bound = clopper_pearson_split(worlds, log_odds[0], DELTA, 0.95, for_mu=True)
    chosen = []
    for threshold in np.sort(log_odds[0, ~judges]):
        game = worlds[~judges], log_odds[0, ~judges]
        rates = clopper_pearson_bound(*game, DELTA, 0.95, threshold).details
        limits = rates["true_positive_rate_low"], rates["false_positive_rate_high"]
        chosen.append((np.subtract(*stats.norm.ppf(limits)), threshold))
    assert bound.details["threshold"] == max(chosen)[1]
    other = np.where(judges, 0.0, log_odds[0])
    again = clopper_pearson_split(worlds, other, DELTA, 0.95, for_mu=True)
    assert again.details["threshold"] == bound.details["threshold"]


@given(st.floats(1e-3, 1e3), st.floats(-100, 100))
def test_a_split_does_not_depend_on_the_scale_of_scores(scale, shift):
    worlds, log_odds = gaussian_game(np.random.default_rng(4), 1, 80, 3.0)
    plain = clopper_pearson_split(worlds, log_odds[0], DELTA, 0.95)
    other = clopper_pearson_split(worlds, scale * log_odds[0] + shift, DELTA, 0.95)
    assert other.epsilon == plain.epsilon > 0


def test_identical_worlds_of_few_values_rarely_prove_anything():
    scores = np.random.default_rng(15).choice([0.0, 1.0, 9.0], (1000, 61), p=[0.6, 0.3, 0.1])
    count = exceedances(clopper_pearson_split, np.arange(61) < 20, scores, 0.0, 0)
    assert often_at_most(count, 1000, 0.05)


def exceedances(bound, worlds, log_odds, delta, epsilon):
    """In how many games [repeats, T] the 95% lower bound claims more than epsilon."""
    return sum(bound(worlds, row, delta, 0.95).epsilon > epsilon for row in log_odds)


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("delta", [1e-6, DELTA])
def test_identical_worlds_rarely_prove_anything(name, delta):
    worlds, log_odds = gaussian_game(np.random.default_rng(11), REPEATS, 60, mu=0)
    count = exceedances(LOWER_BOUNDS[name].bound, worlds, log_odds, delta, 0)
    assert often_at_most(count, REPEATS, 0.05)


def test_identical_worlds_with_many_ties_rarely_prove_anything():
    log_odds = np.random.default_rng(5).choice([-1.0, 0.0, 1.0], (REPEATS, 100), p=[0.1, 0.7, 0.2])
    count = exceedances(clopper_pearson_bound, balanced(100), log_odds, 0, 0)
    assert often_at_most(count, REPEATS, 0.05)


@pytest.mark.parametrize("name", sorted(LOWER_BOUNDS.keys() - QUICK))
@pytest.mark.parametrize("mu", [1e-6, 2.0])
def test_few_games_prove_more_than_their_epsilon(name, mu):
    """Tens of repeats of what the coverage study has thousands of."""
    worlds, log_odds = gaussian_game(np.random.default_rng(12), 100, 60, mu)
    epsilon = gaussian.epsilon(mu, DELTA)
    count = exceedances(LOWER_BOUNDS[name].bound, worlds, log_odds, DELTA, epsilon)
    assert often_at_most(count, 100, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize(
    "mu",
    [
        0.0,
        pytest.param(0.3426508180245408, marks=pytest.mark.long),
        pytest.param(0.6535891631872568, marks=pytest.mark.long),
        3.0,
    ],
)
@pytest.mark.parametrize("trials", [8, 1001])
def test_no_lower_bound_is_wrong_more_often_than_it_says(name, mu, trials):
    # An exact bound fails by chance once in 10,000 runs; one wrong in 7.5 % of games fails 99.8 %.
    repeats, delta = 4_000, 1e-3
    worlds, log_odds = gaussian_game(np.random.default_rng(trials), repeats, trials, mu)
    epsilon = gaussian.epsilon(mu, delta)
    count = exceedances(LOWER_BOUNDS[name].bound, worlds, log_odds, delta, epsilon)
    assert often_at_most(count, repeats, 0.05)


@pytest.mark.parametrize(
    ("mu", "on_d", "confidence"),
    [(0.0, 30, 0.9), (0.6535891631872568, 30, 0.9), (2.0, 10, 0.9), (0.0, 30, 0.1)],
)
def test_the_gaussian_limit_of_mu_is_exact(mu, on_d, confidence):
    """Wrong as often as it says, no less: also where the worlds are unequally many."""
    _, noise = gaussian_game(np.random.default_rng(on_d), REPEATS, 60, mu=0)
    worlds = np.arange(60) < on_d
    log_odds = np.where(worlds, mu**2, 0.0) + (mu or 1.0) * noise
    bounds = [gaussian_bound(worlds, row, DELTA, confidence) for row in log_odds]
    count = sum(bound.details["mu_low"] > mu for bound in bounds)
    assert often_exactly(count, REPEATS, 1 - confidence)


def test_clopper_pearson_covers_randomised_response_and_comes_close():
    """Randomised response is the mechanism whose decisions use up the whole of epsilon."""
    epsilon, trials = 1.0, 2000
    worlds = balanced(trials)
    truthful = np.random.default_rng(1).random((REPEATS, trials)) < 1 / (1 + np.exp(-epsilon))
    log_odds = epsilon * np.where(truthful == worlds, 1, -1)
    bounds = [clopper_pearson_bound(worlds, row, 0, 0.95).epsilon for row in log_odds]
    assert often_at_most(sum(bound > epsilon for bound in bounds), REPEATS, 0.05)
    assert np.median(bounds) > 0.8 * epsilon


def test_with_many_trials_the_gaussian_bound_nearly_reaches_epsilon():
    mu = 0.6535891631872568
    worlds, log_odds = gaussian_game(np.random.default_rng(2), 1, 100_000, mu)
    bound = gaussian_bound(worlds, log_odds[0], DELTA, 0.95)
    assert 0.96 < bound.epsilon / gaussian.epsilon(mu, DELTA) <= 1


@given(st.floats(1e-3, 1e3), st.floats(-100, 100))
def test_the_gaussian_bound_does_not_trust_the_claimed_noise(scale, shift):
    """A wrong claim for sigma scales Lambda, a prior shifts it; neither moves the bound."""
    worlds, log_odds = gaussian_game(np.random.default_rng(4), 1, 40, 2.0)
    plain = gaussian_bound(worlds, log_odds[0], DELTA, 0.95)
    other = gaussian_bound(worlds, scale * log_odds[0] + shift, DELTA, 0.95)
    assert plain.epsilon > 0.5
    assert other.epsilon == pytest.approx(plain.epsilon, rel=1e-6)


def test_the_gaussian_limit_inverts_scipys_noncentral_t():
    worlds, log_odds = gaussian_game(np.random.default_rng(6), 1, 30, 2.0)
    limit = gaussian_bound(worlds, log_odds[0], DELTA, 0.95).details["mu_low"]
    statistic = stats.ttest_ind(log_odds[0, worlds], log_odds[0, ~worlds]).statistic
    noncentrality = limit / np.sqrt(1 / 15 + 1 / 15)
    assert stats.nct.sf(statistic, 28, noncentrality) == pytest.approx(0.05, rel=1e-9)


@pytest.mark.parametrize("trials", [4, 100, 200_000])
@pytest.mark.parametrize("mu", [1.0, 30.0, 1e5])
@pytest.mark.parametrize("confidence", [0.05, 0.95, 1 - 1e-9])
def test_the_gaussian_bound_is_a_number_at_every_size(trials, mu, confidence):
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
def test_where_the_gaussian_model_cannot_hold_the_bound_says_so(log_odds, reason):
    worlds = np.arange(len(log_odds)) < 3
    bound = gaussian_bound(worlds, np.array(log_odds), DELTA, 0.95)
    assert (bound.epsilon, bound.reason) == (0, reason)


@pytest.mark.parametrize("name", LOWER_BOUNDS)
def test_one_world_proves_nothing_and_says_so(name):
    for worlds in (np.ones(100, bool), np.zeros(100, bool)):
        log_odds = np.random.default_rng(0).normal(9, 1, 100)
        bound = LOWER_BOUNDS[name].bound(worlds, log_odds, DELTA, 0.95)
        assert bound.epsilon == 0
        assert bound.reason


def test_bounds_that_need_gaussian_noise_say_nothing_of_another_mechanism():
    # Randomised response, whose decision is right with 3/4: epsilon is log 3.
    rng = rng_of(13)
    worlds = balanced(4000)
    log_odds = np.where(rng.random(4000) < 0.75, 1.0, -1.0) * np.where(worlds, 1, -1) * math.log(3)
    found = lower_bounds(worlds, log_odds, DELTA, 0.95, MechanismKind.OTHER)
    assert all(bound.epsilon <= math.log(3) for bound in found.values())
    silent = {name for name, bound in found.items() if bound.reason == NOT_GAUSSIAN}
    assert silent == {"mu_gdp", "gaussian"}
    assert (
        lower_bounds(worlds, log_odds, DELTA, 0.95, MechanismKind.GAUSSIAN)["mu_gdp"].epsilon > 1.2
    )


def test_bounds_that_do_not_hold_are_named_with_the_reason():
    worlds = balanced(1000)
    log_odds = np.where(worlds, 9.0, -9.0) + rng_of(13).standard_normal(1000)

    def found(*args, **options):
        return lower_bounds(worlds, log_odds, DELTA, 0.95, MechanismKind.GAUSSIAN, *args, **options)

    bounds = found("attacked", refused={"mu_gdp": "unclipped"})
    assert (bounds["mu_gdp"].epsilon, bounds["mu_gdp"].reason) == (0.0, "unclipped")
    assert (bounds["gaussian"].epsilon, bounds["gaussian"].reason) == (0.0, "attacked")
    assert bounds["clopper_pearson"] == clopper_pearson_bound(worlds, log_odds, DELTA, 0.95)
    assert list(found(names=["gaussian"])) == ["gaussian"]
    assert found() == {
        name: estimator.bound(worlds, log_odds, DELTA, 0.95)
        for name, estimator in LOWER_BOUNDS.items()
    }


# Bad input.

BITS, ODDS = np.array([True, False]), np.array([1.0, -1.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: clopper_pearson_bound(BITS, ODDS, 1.0, 0.9), "delta is 1.0"),
        (lambda: gaussian_bound(BITS, ODDS, 0.0, 0.9), "delta is 0.0"),
        (lambda: gaussian_bound(BITS, ODDS, DELTA, 0.0), "confidence is 0.0"),
    ],
)
def test_impossible_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
