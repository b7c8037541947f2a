"""Closed forms of Gaussian differential privacy against integrals, samples and a library."""

import math

import dp_accounting
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from adversaries.errors import InputError
from adversaries.statistics import gaussian

MUS = st.floats(1e-9, 1e3)
DELTAS = st.floats(1e-12, 0.99)

# z_classic, epsilon, delta, exact epsilon at delta, advantage, Pr_D[loss > epsilon]; 30 steps.
RECORDED = [
    (
        15.984860642181161,
        1.0986122886681098,
        0.01,
        0.5538039814125555,
        0.13603209767419933,
        0.0012031176624127497,
    ),
    (
        8.38022703488798,
        2.1972245773362196,
        0.01,
        1.3134725502396565,
        0.2561767421042713,
        0.0012027268180968128,
    ),
    (
        9.951726965394187,
        2.1972245773362196,
        0.001,
        1.5173783421251537,
        0.2168295024673812,
        0.00010079717804310018,
    ),
]


@pytest.mark.parametrize(("z", "epsilon", "delta", "exact", "advantage", "tail"), RECORDED)
def test_the_papers_noise_scales_give_the_recorded_numbers(
    z, epsilon, delta, exact, advantage, tail
):
    mu = math.sqrt(30) / z
    assert gaussian.epsilon(mu, delta) == pytest.approx(exact, rel=1e-9)
    assert gaussian.advantage(mu) == pytest.approx(advantage, rel=1e-9)
    assert gaussian.tail(mu, epsilon) == pytest.approx(tail, rel=1e-9)


@pytest.mark.parametrize("mu", [0.1, 0.65, 2.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.2])
def test_delta_is_the_hockey_stick_divergence_of_the_two_gaussians(mu, epsilon):
    boundary = epsilon / mu + mu / 2
    integral, _ = quad(
        lambda x: norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x), boundary, boundary + 40
    )
    assert gaussian.delta(mu, epsilon) == pytest.approx(integral, rel=1e-7)


@pytest.mark.parametrize("sigma", [0.05, 1.0, 8.38, 100.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.01])
def test_epsilon_agrees_with_dp_accounting(sigma, delta):
    library = dp_accounting.get_epsilon_gaussian(sigma, delta)
    assert gaussian.epsilon(1 / sigma, delta) == pytest.approx(library, rel=1e-6, abs=1e-6)


def test_tail_and_advantage_are_what_the_best_adversary_reaches():
    mu, epsilon, trials = 1.2, 1.0, 1_000_000
    noise = np.random.default_rng(1).standard_normal((2, trials))
    with_record, without = mu**2 / 2 + mu * noise[0], -(mu**2) / 2 + mu * noise[1]
    error = 5 / math.sqrt(trials)
    assert np.mean(with_record > epsilon) == pytest.approx(gaussian.tail(mu, epsilon), abs=error)
    advantage = np.mean(with_record > 0) - np.mean(without > 0)
    assert advantage == pytest.approx(gaussian.advantage(mu), abs=2 * error)


@given(MUS, DELTAS)
def test_epsilon_inverts_delta(mu, delta):
    epsilon = gaussian.epsilon(mu, delta)
    if epsilon == 0:
        assert gaussian.delta(mu, 0) <= delta * (1 + 1e-9)
    else:
        assert gaussian.delta(mu, epsilon) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize("mu", [3.9e9, 1e24, 1e30, 1e120])
@pytest.mark.parametrize("delta", [1e-30, 1e-5, 0.5, 1 - 1e-6])
def test_epsilon_of_next_to_no_noise_is_a_quantile_of_the_loss(mu, delta):
    # The loss is N(mu^2/2, mu^2), and e^epsilon times the other tail is nothing beside it.
    expected = mu * (mu / 2 + norm.isf(delta))
    assert gaussian.epsilon(mu, delta) == pytest.approx(expected, rel=1e-14)


@given(st.floats(0, 1e4), DELTAS)
def test_mu_of_epsilon_inverts_delta(epsilon, delta):
    mu = gaussian.mu_of_epsilon(epsilon, delta)
    assert gaussian.delta(mu, epsilon) == pytest.approx(delta, rel=1e-6)


@given(st.floats(0, 15))
def test_mu_of_advantage_inverts_advantage(mu):
    # An advantage near 1 is rounded to a relative 1e-16, which costs digits of a large mu.
    error = 1e-12 + 1e-16 / norm.pdf(mu / 2)
    assert gaussian.mu_of_advantage(gaussian.advantage(mu)) == pytest.approx(mu, rel=error)


@given(MUS, st.floats(0, 1e3), st.floats(1.001, 2))
@example(1e-9, 574.625, 1.4)  # further out than a difference can be told from rounding
@example(1.2e-5, 900.0, 1.4)
def test_delta_grows_with_mu_and_falls_with_epsilon(mu, epsilon, factor):
    delta = gaussian.delta(mu, epsilon)
    assert gaussian.delta(mu * factor, epsilon) >= delta * (1 - 1e-12)
    assert gaussian.delta(mu, epsilon * factor) <= delta * (1 + 1e-12)


@given(MUS, st.floats(0, 1e3))
def test_the_tail_lies_above_delta(mu, epsilon):
    assert gaussian.tail(mu, epsilon) >= gaussian.delta(mu, epsilon) * (1 - 1e-9)


@given(MUS)
def test_the_advantage_is_delta_at_epsilon_zero(mu):
    assert gaussian.delta(mu, 0.0) == gaussian.advantage(mu)
    assert float(gaussian.deltas(mu, np.zeros(1))[0]) == pytest.approx(gaussian.advantage(mu))


def test_an_array_of_epsilons_gives_the_array_of_deltas():
    epsilons = np.array([0.0, 0.5, 3.0, 40.0])
    expected = [gaussian.delta(1.5, epsilon) for epsilon in epsilons]
    np.testing.assert_allclose(gaussian.deltas(1.5, epsilons), expected, rtol=1e-12)


def test_large_mu_and_minute_delta_neither_overflow_nor_underflow():
    epsilon = gaussian.epsilon(1e4, 1e-300)
    assert epsilon == pytest.approx(1e8 / 2 - 1e4 * norm.ppf(1e-300), rel=1e-4)
    assert gaussian.delta(1e4, epsilon) == pytest.approx(1e-300, rel=1e-6)
    assert gaussian.delta(1e-6, 5e-6) == pytest.approx(
        1e-6 * (norm.pdf(5) - 5 * norm.sf(5)), rel=1e-4
    )


def test_infinite_noise_leaks_nothing():
    assert gaussian.delta(0.0, 0.0) == 0.0
    assert gaussian.epsilon(0.0, 1e-9) == 0.0
    assert gaussian.advantage(0.0) == 0.0
    assert gaussian.tail(0.0, 0.0) == 0.0


def test_no_noise_leaks_everything():
    assert gaussian.delta(math.inf, 100.0) == 1.0
    assert gaussian.epsilon(math.inf, 0.5) == math.inf
    assert gaussian.advantage(math.inf) == 1.0
    assert gaussian.tail(math.inf, 100.0) == 1.0
    assert gaussian.mu_of_advantage(1.0) == math.inf


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: gaussian.delta(-1.0, 1.0), "mu is -1"),
        (lambda: gaussian.delta(math.nan, 1.0), "mu is nan"),
        (lambda: gaussian.delta(1.0, -0.1), "epsilon is -0.1"),
        (lambda: gaussian.epsilon(1.0, 0.0), "delta is 0"),
        (lambda: gaussian.epsilon(1.0, 1.0), "delta is 1"),
        (lambda: gaussian.mu_of_epsilon(math.inf, 0.1), "epsilon is infinite"),
        (lambda: gaussian.mu_of_advantage(1.1), "advantage is 1.1"),
        (lambda: gaussian.tail(1.0, math.nan), "epsilon is not a number"),
    ],
)
def test_values_out_of_range_are_refused(call, complaint):
    with pytest.raises(InputError, match=complaint):
        call()
