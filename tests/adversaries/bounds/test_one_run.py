"""One-run audits: guesses by rank, what they prove, and how often that is more than the truth."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, NonlinearConstraint, minimize
from scipy.special import expit, ndtr, ndtri
from scipy.stats import binom

from adversaries.bounds import one_run
from adversaries.errors import InputError
from adversaries.statistics.gaussian import epsilon as gaussian_epsilon
from adversaries.statistics.gaussian import mu_of_epsilon

DELTA, CONFIDENCE = 1e-5, 0.95


def _gaussian_game(mu, canaries, runs, seed=0):
    rng = np.random.default_rng(seed)
    coins = rng.random((runs, canaries)) < 0.5
    return coins, mu * coins + rng.standard_normal(coins.shape)


def test_the_highest_scores_are_guessed_in_and_the_lowest_out():
    included = np.array([True, False, True, False, True])
    scores = np.array([5.0, 4.0, 3.0, 2.0, 1.0])
    counts = [int(one_run.right_guesses(included, scores, made)) for made in range(1, 6)]
    # In: 5 (right), 4 (wrong), 3 (right). Out: 1 (wrong), 2 (right).
    assert counts == [1, 1, 1, 2, 3]


def test_equal_scores_are_ranked_alike_whatever_the_coins():
    everybody = np.asarray(list(itertools.product([False, True], repeat=4)))
    right = np.array([one_run.right_guesses(coins, np.zeros(4), 2) for coins in everybody])
    ranked = [
        (first, last)
        for first, last in itertools.permutations(range(4), 2)
        if (right == everybody[:, first].astype(int) + ~everybody[:, last]).all()
    ]
    assert len(ranked) == 1


def test_equal_scores_in_an_order_that_knows_the_coins_prove_nothing():
    coins = np.arange(1000) < 500
    for ties in (np.zeros(1000), (np.arange(1000) % 500 < 200).astype(float)):
        for included in (coins, ~coins):
            found = one_run.bounds(included, ties, 1e-5, 0.95)
            assert [bound.epsilon for bound in found.values()] == [0, 0]


@pytest.mark.parametrize("delta", [0.0, 1e-3])
@pytest.mark.parametrize(("guesses", "right"), [(40, 0), (40, 31), (40, 40), (100, 70)])
def test_the_binomial_p_value_is_the_sum_that_the_paper_prints(guesses, right, delta):
    canaries, q = 100, expit(1.0)
    beta = binom.sf(right - 1, guesses, q)
    above = [(binom.sf(right - i - 1, guesses, q) - beta) / i for i in range(1, right + 1)]
    expected = min(1.0, beta + 2 * canaries * delta * max(above, default=0.0))
    found = one_run.binomial_p_value(canaries, guesses, right, 1.0, delta)
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("right", range(1, 9))
def test_no_private_release_beats_the_binomial_p_value(right):
    canaries, epsilon, delta = 8, 1.0, 0.01
    found = one_run.binomial_p_value(canaries, canaries, right, epsilon, delta)
    # Randomised response that names every coin outright with probability delta.
    outright = binom.sf(right - 1, canaries, delta + (1 - delta) * expit(epsilon))
    # Randomised response, but all coins at once with probability delta.
    at_once = delta + (1 - delta) * binom.sf(right - 1, canaries, expit(epsilon))
    assert max(outright, at_once) <= found * (1 + 1e-12)


def _most_probable(canaries, guesses, right, mu):
    """Return the largest P[right >= v] under the inequalities of all tails, by brute force."""
    counts = np.arange(guesses + 1)
    found, wrong = counts / canaries, (guesses - counts) / canaries

    def slack(masses):
        masses = np.clip(masses, 0, 1)
        return [
            float(ndtr(ndtri(min(1.0, wrong[i - 1 :] @ masses[i - 1 :])) + mu))
            - float(found[i:] @ masses[i:])
            for i in range(1, guesses + 1)
        ]

    solutions = [
        minimize(
            lambda masses: -masses[right:].sum(),
            start,
            method="SLSQP",
            bounds=[(0, 1)] * (guesses + 1),
            constraints=[
                LinearConstraint(np.ones(guesses + 1), 1, 1),
                NonlinearConstraint(slack, 0, np.inf),
            ],
            options={"ftol": 1e-12, "maxiter": 500},
        )
        for start in (binom.pmf(counts, guesses, 0.5), np.full(guesses + 1, 1 / (guesses + 1)))
    ]
    feasible = [s for s in solutions if min(slack(s.x)) > -1e-9 and abs(s.x.sum() - 1) < 1e-9]
    return float(max(-s.fun for s in feasible))


@pytest.mark.filterwarnings("ignore:delta_grad")
@pytest.mark.filterwarnings("ignore:Values in x were outside bounds")
@pytest.mark.parametrize(
    ("canaries", "guesses", "right", "mu"),
    [(2, 2, 2, 0.5), (3, 3, 2, 0.5), (3, 3, 3, 1.0), (4, 2, 2, 1.0)],
)
def test_the_recursion_finds_what_all_inequalities_together_allow(canaries, guesses, right, mu):
    most, mus = _most_probable(canaries, guesses, right, mu), np.array([mu])
    refuted = [
        bool(one_run.gaussian_refuted(canaries, guesses, right, mus, alpha)[0])
        for alpha in (most * 0.999, most * 1.001)
    ]
    assert refuted == [False, True]


def test_the_recursion_is_the_published_one():
    canaries, guesses, right, alpha = 50, 20, 15, 0.05

    def refuted(mu):
        found, wrong = alpha * right / canaries, alpha * (guesses - right) / canaries
        for i in range(right - 1, -1, -1):
            more = max(wrong, float(ndtr(ndtri(found) - mu)))
            found, wrong = found + i / (guesses - i) * (more - wrong), more
        return found + wrong > guesses / canaries

    limit = one_run.gaussian_mu(canaries, guesses, right, alpha)
    assert limit > 0.05
    assert refuted(limit - 1e-4)
    assert not refuted(limit + 1e-4)


@pytest.mark.parametrize("mu", [0.3, 1.5])
def test_a_gaussian_mechanism_is_not_refuted_by_what_it_does(mu):
    canaries = 12
    for right in range(1, canaries + 1):
        # Orthogonal canaries, each guessed by the likelier side: right with Phi(mu/2).
        probability = float(binom.sf(right - 1, canaries, ndtr(mu / 2)))
        arguments = canaries, canaries, right, np.array([mu]), probability
        assert not one_run.gaussian_refuted(*arguments).any()


def test_more_right_guesses_prove_more_and_none_prove_nothing():
    for limit in (
        [one_run.gaussian_mu(100, 40, right, 0.05) for right in range(0, 41, 4)],
        [one_run.binomial_epsilon(100, 40, right, DELTA, 0.05) for right in range(0, 41, 4)],
    ):
        assert limit[0] == limit[5] == 0
        assert limit == sorted(limit)
        assert limit[-1] > 1


def test_all_right_without_delta_is_the_binomial_limit_in_closed_form():
    found = one_run.binomial_epsilon(30, 30, 30, 0.0, 0.05)
    accuracy = 0.05 ** (1 / 30)
    assert found == pytest.approx(math.log(accuracy / (1 - accuracy)), abs=1e-5)


def _bounds(coins, scores):
    """Return both bounds of each run, [N] each."""
    found = [one_run.bounds(*run, DELTA, CONFIDENCE) for run in zip(coins, scores, strict=True)]
    return [np.array([each[name].epsilon for each in found]) for name in ("binomial", "f_dp")]


@pytest.mark.parametrize("epsilon", [0.0, 2.0])
def test_bounds_are_above_the_truth_no_more_often_than_alpha(epsilon):
    runs = 2000  # in which few numbers of right guesses differ, and each is worked out once
    mu = mu_of_epsilon(epsilon, DELTA) if epsilon else 0.0
    coins, scores = _gaussian_game(mu, 120, runs)
    allowed = 0.05 + 4 * math.sqrt(0.05 * 0.95 / runs)
    for found in _bounds(coins, scores):
        assert (found > epsilon).mean() <= allowed
    for found in _bounds(coins, scores + 100 * coins):
        assert found.min() > 0.5


def test_of_a_gaussian_mechanism_the_f_dp_bound_proves_more_than_the_binomial():
    coins, scores = _gaussian_game(mu_of_epsilon(4.0, DELTA), 1000, 20)
    binomial, f_dp = _bounds(coins, scores)
    assert (f_dp > binomial).all()
    assert 1 < np.median(binomial) < np.median(f_dp) < 4


def test_the_estimate_is_near_the_truth_whatever_the_unit_of_the_scores():
    (coins,), (scores,) = _gaussian_game(1.0, 20_000, 1)
    found = one_run.client_canary_estimate(coins, 7 - 3 * -scores, DELTA, 0.999)
    assert found.mu_interval.low < 1.0 < found.mu_interval.high
    assert found.epsilon == pytest.approx(gaussian_epsilon(1.0, DELTA), rel=0.1)
    assert found.epsilon_interval.low < found.epsilon < found.epsilon_interval.high
    assert "no guarantee" in found.assumes


def test_canaries_on_one_side_alone_allow_no_estimate():
    found = one_run.client_canary_estimate(np.ones(5, bool), np.arange(5.0), DELTA, CONFIDENCE)
    assert found.reason == "fewer than two canaries on one side of the coin"
    assert found.epsilon == 0


@pytest.mark.parametrize(
    ("included", "scores", "guesses", "delta", "complaint"),
    [
        (np.ones(3, bool), np.ones(4), 0, DELTA, "give both as"),
        (np.ones(0, bool), np.ones(0), 0, DELTA, "give both as"),
        (np.ones(3, bool), np.array([1.0, np.nan, 2.0]), 0, DELTA, "not finite"),
        (np.ones(3, bool), np.ones(3), 4, DELTA, "4 guesses about 3 canaries"),
        (np.ones(3, bool), np.ones(3), 0, 1.0, "delta is 1.0"),
    ],
)
def test_bad_input_is_refused(included, scores, guesses, delta, complaint):
    with pytest.raises(InputError, match=complaint):
        one_run.bounds(included, scores, delta, CONFIDENCE, guesses)


def test_canaries_that_lower_every_score_estimate_nothing():
    included = np.arange(6) < 3
    scores = np.where(included, -1.0, 1.0)
    found = one_run.client_canary_estimate(included, scores, DELTA, CONFIDENCE)
    assert (found.mu, found.epsilon) == (-math.inf, 0.0)
    assert (found.epsilon_interval.low, found.epsilon_interval.high) == (0.0, 0.0)
    other = one_run.client_canary_estimate(~included, scores, DELTA, CONFIDENCE)
    assert other.epsilon == math.inf
