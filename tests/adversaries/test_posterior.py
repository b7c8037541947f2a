"""The posterior equals Bayes' rule on the densities, in log-odds that never saturate."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from adversaries.posterior import hypotheses, log_likelihood_ratio, log_odds


def _ratio(observed: list[float], f_d: list[float], f_d_prime: list[float], sigma: float) -> float:
    def row(values: list[float]) -> torch.Tensor:
        return torch.tensor([values], dtype=torch.float64)

    known = torch.zeros_like(row(f_d))
    noise_std = torch.tensor([sigma], dtype=torch.float64)
    both = hypotheses(known, row(f_d), row(f_d_prime), noise_std)
    return float(log_likelihood_ratio(both, row(observed)))


def test_the_recorded_example_of_the_papers_code() -> None:
    ratio = _ratio([0.2, 0.5, -0.3], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0], 1.0)
    assert ratio == pytest.approx(1.1, rel=1e-12)
    odds = log_odds(0.5, np.array([[ratio]]))
    assert 1 / (1 + np.exp(-odds[0, 0])) == pytest.approx(0.7502601055951177, rel=1e-12)


vectors = st.lists(st.floats(-5, 5), min_size=3, max_size=3)


@settings(deadline=None)
@given(vectors, vectors, vectors, st.floats(0.1, 10))
def test_the_ratio_is_that_of_the_gaussian_densities(
    observed: list[float], f_d: list[float], f_d_prime: list[float], sigma: float
) -> None:
    def log_density(mean: list[float]) -> float:
        return float(stats.norm.logpdf(observed, mean, sigma).sum())

    expected = log_density(f_d) - log_density(f_d_prime)
    if f_d == f_d_prime:
        expected = 0.0
    assert _ratio(observed, f_d, f_d_prime, sigma) == pytest.approx(expected, rel=1e-9, abs=1e-8)


def test_what_is_known_in_both_worlds_says_nothing() -> None:
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


def test_a_step_without_a_difference_says_nothing_even_without_noise() -> None:
    same = torch.ones(2, 3, dtype=torch.float64)
    both = hypotheses(same, same, same, torch.zeros(2, dtype=torch.float64))
    assert log_likelihood_ratio(both, same * 7).tolist() == [0.0, 0.0]


def test_log_odds_start_from_the_prior_and_do_not_saturate() -> None:
    odds = log_odds(0.9, np.array([[500.0, 500.0]]))
    np.testing.assert_allclose(odds, [[np.log(9) + 500, np.log(9) + 1000]])


def test_log_odds_of_a_gaussian_game_follow_the_prediction() -> None:
    # Lambda | b ~ N(+-mu^2/2, mu^2) with mu^2 = k (LS/sigma)^2.
    generator = torch.Generator().manual_seed(1)
    trials, steps, sigma = 4000, 5, 4.0
    present = torch.randn(trials, 30, generator=generator, dtype=torch.float64)
    present *= 2.0 / present.norm(dim=1, keepdim=True)
    std = torch.full((trials,), sigma, dtype=torch.float64)
    both = hypotheses(torch.zeros_like(present), present, torch.zeros_like(present), std)
    ratios = torch.stack(
        [
            log_likelihood_ratio(
                both,
                present
                + sigma * torch.randn(present.shape, generator=generator, dtype=torch.float64),
            )
            for _ in range(steps)
        ],
        dim=1,
    )
    final = log_odds(0.5, ratios.numpy())[:, -1]
    mu = np.sqrt(steps) * 2.0 / sigma
    assert stats.kstest(final, "norm", args=(mu**2 / 2, mu)).pvalue > 1e-3
