"""The posterior equals Bayes' rule on the densities, in log-odds that never saturate."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from adversaries.attacks.posterior import (
    hypotheses,
    log_likelihood_ratio,
    log_odds,
    mixture,
    ratio_without_noise,
)


def _ratio(observed, f_d, f_d_prime, sigma):
    def row(values):
        return torch.tensor([values], dtype=torch.float64)

    known = torch.zeros_like(row(f_d))
    noise_std = torch.tensor([sigma], dtype=torch.float64)
    both = hypotheses(known, row(f_d), row(f_d_prime), noise_std)
    return float(log_likelihood_ratio(both, row(observed)))


def test_the_recorded_example_of_the_papers_code():
    ratio = _ratio([0.2, 0.5, -0.3], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0], 1.0)
    assert ratio == pytest.approx(1.1, rel=1e-12)
    odds = log_odds(np.array([[ratio]]))
    assert 1 / (1 + np.exp(-odds[0, 0])) == pytest.approx(0.7502601055951177, rel=1e-12)


vectors = st.lists(st.floats(-5, 5), min_size=3, max_size=3)


@given(vectors, vectors, vectors, st.floats(0.1, 10))
def test_the_ratio_is_that_of_the_gaussian_densities(observed, f_d, f_d_prime, sigma):
    def log_density(mean):
        return float(stats.norm.logpdf(observed, mean, sigma).sum())

    expected = log_density(f_d) - log_density(f_d_prime)
    if f_d == f_d_prime:
        expected = 0.0
    assert _ratio(observed, f_d, f_d_prime, sigma) == pytest.approx(expected, rel=1e-9, abs=1e-8)


@given(vectors, vectors, vectors, st.floats(0.5, 10), st.floats(0.01, 0.99), st.booleans())
def test_a_sampled_steps_ratio_is_that_of_the_mixtures_of_densities(
    observed, present, absent, sigma, rate, replaced
):
    known = [1.0, -2.0, 0.5]

    def log_mixture(gradient):
        with_it = stats.norm.logpdf(observed, np.add(known, gradient), sigma).sum()
        without = stats.norm.logpdf(observed, known, sigma).sum()
        return float(np.logaddexp(np.log(rate) + with_it, np.log1p(-rate) + without))

    def row(values):
        return torch.tensor([values], dtype=torch.float64)

    absent = absent if replaced else [0.0, 0.0, 0.0]
    both = hypotheses(
        row(known),
        row(present),
        row(absent) if replaced else None,
        torch.tensor([sigma], dtype=torch.float64),
        rate,
    )
    expected = 0.0 if present == absent else log_mixture(present) - log_mixture(absent)
    found = float(log_likelihood_ratio(both, row(observed)))
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-8)


def test_the_mixture_becomes_the_unmixed_score_as_the_rate_becomes_one():
    scores = torch.linspace(-5, 800, 100, dtype=torch.float64)
    assert torch.equal(mixture(scores, 1.0), scores)
    torch.testing.assert_close(mixture(scores, 1 - 1e-12), scores, rtol=0, atol=1e-9)


def test_the_mixture_neither_overflows_nor_falls_below_the_log_of_absence():
    scores = torch.tensor([-1e6, 0.0, 1e6], dtype=torch.float64)
    expected = [np.log(0.9), 0.0, 1e6 + np.log(0.1)]
    np.testing.assert_allclose(mixture(scores, 0.1), expected, atol=1e-12)


def test_hypotheses_say_how_long_the_gradients_are():
    present = torch.tensor([[3.0, 4.0], [0.0, 1.0]], dtype=torch.float64)
    absent = torch.tensor([[3.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    std = torch.ones(2, dtype=torch.float64)
    for rate in (0.5, 1.0):
        replaced = hypotheses(torch.zeros_like(present), present, absent, std, rate)
        assert replaced.sensitivity.tolist() == [4.0, 0.0]
        assert replaced.present_norm.tolist() == [5.0, 1.0]
        assert replaced.absent_norm.tolist() == [3.0, 1.0]
        removed = hypotheses(torch.zeros_like(present), present, None, std, rate)
        assert removed.sensitivity.tolist() == removed.present_norm.tolist() == [5.0, 1.0]
        assert removed.absent_norm.tolist() == [0.0, 0.0]


def test_what_is_known_in_both_worlds_says_nothing():
    generator = torch.Generator().manual_seed(0)
    present, absent, noise, known = torch.randn(4, 5, 20, generator=generator, dtype=torch.float64)
    std = torch.ones(5, dtype=torch.float64)
    without = log_likelihood_ratio(
        hypotheses(torch.zeros_like(known), present, absent, std), present + noise
    )
    with_known = log_likelihood_ratio(
        hypotheses(1e6 * known, present, absent, std), 1e6 * known + present + noise
    )
    torch.testing.assert_close(with_known, without, rtol=1e-6, atol=1e-6)


def test_a_step_without_a_difference_says_nothing_even_without_noise():
    same = torch.ones(2, 3, dtype=torch.float64)
    both = hypotheses(same, same, same, torch.zeros(2, dtype=torch.float64))
    assert log_likelihood_ratio(both, same * 7).tolist() == [0.0, 0.0]


def test_log_odds_add_up_and_do_not_saturate():
    odds = log_odds(np.array([[500.0, 500.0]]))
    assert odds.tolist() == [[500.0, 1000.0]]


@pytest.mark.parametrize("rate", [1.0, 0.3])
@pytest.mark.parametrize("replaced", [False, True])
def test_without_noise_the_ratio_is_the_limit_of_vanishing_noise(rate, replaced):
    present = torch.tensor([[1.0, 0.0, 2.0]], dtype=torch.float64)
    absent = torch.tensor([[0.5, -1.0, 0.0]], dtype=torch.float64) if replaced else None
    other = torch.zeros_like(present) if absent is None else absent
    sums = [present, other] if rate == 1 else [0 * present, present, other]
    for kind, total in enumerate(sums, start=1 if rate == 1 else 0):
        tiny = torch.tensor([1e-3], dtype=torch.float64)
        limit = log_likelihood_ratio(hypotheses(0 * total, present, absent, tiny, rate), total)
        exact = ratio_without_noise(
            torch.tensor([kind]),
            present.norm(dim=1),
            other.norm(dim=1),
            (present - other).norm(dim=1),
            rate,
        )
        if exact.isinf():
            assert limit.sign() == exact.sign()
            assert limit.abs() > 1e4
        else:
            torch.testing.assert_close(exact, limit, rtol=1e-6, atol=1e-6)


def test_without_noise_gradients_that_are_alike_tell_nothing():
    one, none = torch.ones(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    seen = torch.tensor([0, 1, 2])
    assert ratio_without_noise(seen, one, one, none, 0.5).tolist() == [0, 0, 0]
    # A gradient of length 0 leaves the sum as it is.
    assert ratio_without_noise(seen, none, none, none, 0.5).tolist() == [0, 0, 0]


def test_a_sum_over_several_draws_is_weighed_by_every_pattern_of_their_coins():
    """Against the 2^L Gaussians of a sum that has the record in some of its L steps."""
    rate, draws, std = 0.3, 4, 1.7
    generator = torch.Generator().manual_seed(5)
    known, present, aggregate = torch.randn(3, 6, 5, generator=generator, dtype=torch.float64)
    pending = hypotheses(known, present, None, torch.tensor(std).double(), rate, draws)
    normal = torch.distributions.Normal(0.0, std)
    patterns = []
    for coins in itertools.product([0, 1], repeat=draws):
        chance = np.prod([rate if coin else 1 - rate for coin in coins])
        density = normal.log_prob(aggregate - known - sum(coins) * present).sum(1)
        patterns.append(np.log(chance) + density)
    expected = torch.logsumexp(torch.stack(patterns), 0) - normal.log_prob(aggregate - known).sum(1)
    torch.testing.assert_close(log_likelihood_ratio(pending, aggregate), expected)
