"""PAC privacy: what a noisy release tells of a secret that is drawn from a stated prior."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import ndtr, xlogy

from adversaries.errors import InputError
from adversaries.statistics import gaussian
from fedsim.privacy import pac

positive = st.floats(1e-3, 1e3)
spectra = st.lists(st.just(0.0) | st.floats(1e-6, 1e3), min_size=1, max_size=6).map(np.asarray)


def _bernoulli_divergence(p, prior):
    return float(xlogy(p, p / prior) + xlogy(1 - p, (1 - p) / (1 - prior)))


def _log_det(eigenvalues, variances):
    """Return 1/2 log det(I + Sigma Sigma_B^-1): of all signals, the Gaussian one tells most."""
    return float(np.log1p(eigenvalues / variances).sum() / 2)


def _linear(eigenvalues, variances):
    """Return 1/2 tr(Sigma Sigma_B^-1), which is no less."""
    return float((eigenvalues / variances).sum() / 2)


def _true_information(means, probabilities, deviation, grid):
    """Return MI(S; c_S + N(0, deviation^2)) on a line, by integration on a grid."""
    likelihoods = np.exp(-((grid[:, None] - means) ** 2) / (2 * deviation**2))
    likelihoods /= deviation * math.sqrt(2 * math.pi)
    mixture = likelihoods @ probabilities
    entropy = -np.trapezoid(xlogy(mixture, mixture), grid)
    return float(entropy - 0.5 * math.log(2 * math.pi * math.e * deviation**2))


# Against published numbers.


@pytest.mark.parametrize(
    ("information", "success"),
    [
        (0.0625, 0.6749094650618073),
        (0.00390625, 0.5441653771743294),
        (4.889443516731262e-05, 0.5049443724719028),
    ],
)
def test_the_success_bound_is_that_of_the_published_code(information, success):
    assert pac.success_bound(information) == pytest.approx(success, rel=1e-11)
    assert pac.advantage_bound(information) == pytest.approx(2 * success - 1, rel=1e-9)


def test_the_equivalent_epsilon_is_that_of_the_published_code():
    success = pac.success_bound(4.889443516731262e-05)
    assert pac.epsilon_of_success(success, 1e-5) == pytest.approx(0.019758330229927658, rel=1e-9)


def test_the_noise_of_three_eigenvalues_is_that_worked_out_by_hand():
    eigenvalues, budget = np.array([4.0, 1.0, 0.25]), 0.5
    variances = pac.anisotropic_variances(eigenvalues, budget)
    np.testing.assert_allclose(variances, [7, 3.5, 1.75])
    assert variances.sum() == pytest.approx(12.25)
    information = _log_det(eigenvalues, variances)
    assert information == pytest.approx(0.418415472324243, rel=1e-12)
    assert _linear(eigenvalues, variances) == pytest.approx(0.5)


# The noise.


@given(spectra, positive)
def test_the_noise_keeps_its_budget(eigenvalues, budget):
    seen = eigenvalues[eigenvalues > 0]
    assume(len(seen))
    variances = pac.anisotropic_variances(eigenvalues, budget)
    assert np.all(variances[eigenvalues == 0] == 0)
    assert _linear(seen, variances[eigenvalues > 0]) == pytest.approx(budget)
    assert _log_det(seen, variances[eigenvalues > 0]) <= budget * (1 + 1e-9)


@given(spectra, positive, st.integers(0, 2**30))
def test_no_other_noise_of_the_same_linear_budget_is_smaller(eigenvalues, budget, seed):
    eigenvalues = eigenvalues + 1e-3
    other = eigenvalues * np.random.default_rng(seed).uniform(0.01, 1, eigenvalues.shape)
    other *= _linear(eigenvalues, other) / budget
    assert _linear(eigenvalues, other) == pytest.approx(budget)
    least = pac.anisotropic_variances(eigenvalues, budget).sum()
    assert least <= other.sum() * (1 + 1e-12)
    assert least == pytest.approx(np.sqrt(eigenvalues).sum() ** 2 / (2 * budget))


@given(
    st.lists(st.floats(-3, 3), min_size=2, max_size=6),
    st.floats(0.3, 3),
    st.integers(0, 2**30),
)
def test_the_log_det_bound_is_above_the_information_found_by_integration(means, deviation, seed):
    places = np.array(means)
    probabilities = np.random.default_rng(seed).dirichlet(np.ones(len(places)))
    covariance = probabilities @ (places - probabilities @ places) ** 2
    truth = _true_information(places, probabilities, deviation, np.linspace(-40, 40, 20_001))
    bound = _log_det(np.array([covariance]), np.array([deviation**2]))
    assert truth <= bound + 1e-9


# The covariance.


# What information is worth.


@given(st.floats(1e-6, 1 - 1e-6), st.floats(1e-6, 0.999))
def test_the_success_bound_is_where_the_divergence_meets_the_information(prior, share):
    information = share * -math.log(prior)
    bound = pac.success_bound(information, prior)
    assert prior <= bound <= 1
    tolerance = 1e-15 / (prior * (1 - prior)) + 1e-9 * information
    assert _bernoulli_divergence(bound, prior) <= information + tolerance
    further = bound + 1e-6 * (1 - bound)
    assert _bernoulli_divergence(further, prior) >= information - tolerance


@pytest.mark.parametrize("prior", [1e-9, 0.03, 0.5, 0.97])
def test_no_information_leaves_the_prior_and_enough_leaves_nothing(prior):
    assert pac.success_bound(0.0, prior) == prior
    assert pac.success_bound(-math.log(prior), prior) == 1.0
    assert pac.success_bound(math.inf, prior) == 1.0


@pytest.mark.parametrize("prior", [1e-9, 0.5, 1 - 1e-9])
@pytest.mark.parametrize("information", [1e-300, 1e-12, 1e-3, 0.6931471805599, 30.0, 700.0])
def test_extremes_give_probabilities(prior, information):
    bound = pac.success_bound(information, prior)
    assert prior <= bound <= 1
    assert pac.success_bound(information * 1.01, prior) >= bound


@pytest.mark.parametrize("prior", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("deviation", [0.5, 1.0, 4.0])
def test_the_best_guess_of_a_simulated_game_stays_below_the_bound(prior, deviation):
    """Guess by Bayes' rule which of four places was observed, or only whether it was the last."""
    places, random = np.array([-1.0, 0.0, 0.5, 2.0]), np.random.default_rng(3)
    probabilities = np.append(np.full(3, (1 - prior) / 3), prior)
    covariance = probabilities @ (places - probabilities @ places) ** 2
    information = float(_log_det(np.array([covariance]), np.array([deviation**2])))
    games = 200_000
    secret = random.choice(4, games, p=probabilities)
    observed = places[secret] + deviation * random.standard_normal(games)
    posterior = probabilities * np.exp(-((observed[:, None] - places) ** 2) / (2 * deviation**2))
    posterior /= posterior.sum(1, keepdims=True)
    whole = (posterior.argmax(1) == secret).mean()
    one = ((posterior[:, 3] > 0.5) == (secret == 3)).mean()
    error = 4 * 0.5 / math.sqrt(games)
    assert whole <= pac.success_bound(information, probabilities.max()) + error
    assert one <= pac.success_bound(information, max(prior, 1 - prior)) + error
    # The game is no walkover: the guess is better than the prior where there is little noise.
    if deviation < 1:
        assert whole > probabilities.max() + 0.02


def test_the_equivalent_epsilon_allows_the_same_success():
    for success, delta in ((0.6, 0.0), (0.9, 0.01), (1 - 1e-9, 1e-6)):
        growth = math.exp(pac.epsilon_of_success(success, delta))
        assert (growth + delta) / (growth + 1) == pytest.approx(success, rel=1e-12)
    assert pac.epsilon_of_success(0.5, 0.1) == 0.0
    assert pac.epsilon_of_success(1.0, 0.1) == math.inf


# The identification game.


@pytest.mark.parametrize("multiplier", [0.3, 1.0, 4.0])
def test_a_full_batch_tells_no_more_than_the_bound(multiplier):
    places, even = np.array([0.0, 1.0]), np.array([0.5, 0.5])
    truth = _true_information(places, even, multiplier, np.linspace(-60, 60, 60_001))
    bound = pac.pair_information(multiplier)
    assert truth <= bound
    assert bound == pytest.approx(math.log(1 + 1 / (4 * multiplier**2)) / 2)
    if multiplier >= 4:
        assert truth == pytest.approx(bound, rel=0.01)


@pytest.mark.parametrize("replaced", [False, True], ids=["add-remove", "replace"])
@pytest.mark.parametrize("belief", [0.5, 0.2, 0.9])
@pytest.mark.parametrize("rate", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("multiplier", [0.05, 0.3, 1.0])
def test_a_sampled_step_tells_no_more_than_the_bound_whatever_is_believed(
    replaced, belief, rate, multiplier
):
    """In units of the sensitivity: g = 1 or 1/2 under D, g' = 0 or -1/2 under D'."""
    grid = np.linspace(-60, 61, 400_001)
    present, absent = (0.5, -0.5) if replaced else (1.0, 0.0)

    def told(*means):
        places, probabilities = np.array(means).T
        return _true_information(places, probabilities, multiplier, grid)

    signal = told((0.0, 1 - rate), (present, rate * belief), (absent, rate * (1 - belief)))
    # MI(b; r) is MI(signal; r) without what is told of the coin once b is known.
    of_coin = belief * told((0.0, 1 - rate), (present, rate))
    of_coin += (1 - belief) * told((0.0, 1 - rate), (absent, rate))
    assert signal - of_coin <= pac.pair_information(multiplier, rate) + 1e-6


@given(st.floats(0.01, 100), st.floats(1e-3, 1.0))
def test_the_bound_is_below_log_det_of_the_sampled_signal(multiplier, rate):
    bound = pac.pair_information(multiplier, rate) * (1 - 1e-9)
    removed = np.array([rate / 2 * (1 - rate / 2)])
    opposite = np.array([rate / 4])
    for covariance in (removed, opposite):
        assert bound <= _log_det(covariance, np.array([multiplier**2]))


@pytest.mark.parametrize("multiplier", [1.0, 8.0])
def test_the_success_bound_of_many_rounds_is_above_the_best_test(multiplier):
    for rounds in (1, 10, 100):
        information = rounds * pac.pair_information(multiplier)
        truth = gaussian.advantage(math.sqrt(rounds) / multiplier)
        assert truth == pytest.approx(2 * ndtr(math.sqrt(rounds) / (2 * multiplier)) - 1)
        assert truth <= pac.advantage_bound(information)


def test_no_noise_tells_everything():
    assert pac.pair_information(0.0, 0.5) == math.inf
    assert pac.success_bound(pac.pair_information(0.0)) == 1.0


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: pac.anisotropic_variances(np.ones(2), 0.0), "budget of mutual information is 0"),
        (lambda: pac.anisotropic_variances(-np.ones(2), 1.0), "eigenvalues must not be"),
        (lambda: pac.success_bound(-0.1), "mutual information is -0.1"),
        (lambda: pac.success_bound(math.nan), "mutual information is nan"),
        (lambda: pac.success_bound(0.1, 1.0), "prior success is 1.0"),
        (lambda: pac.epsilon_of_success(0.4, 0.1), "success is 0.4"),
        (lambda: pac.epsilon_of_success(0.6, 1.0), "delta is 1.0"),
        (lambda: pac.pair_information(-1.0), "noise multiplier is -1.0"),
        (lambda: pac.pair_information(1.0, 0.0), "sampling rate is 0.0"),
    ],
)
def test_impossible_values_are_refused_in_one_line(call, complaint):
    with pytest.raises(InputError, match=complaint) as caught:
        call()
    assert "\n" not in str(caught.value)
