"""The posterior over several candidates is Bayes' rule, and succeeds as often as theory says."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from adversaries.attacks.candidates import log_likelihood_ratios, log_posterior, surprise


@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_the_posterior_is_bayes_rule_on_the_densities(rate):
    generator = np.random.default_rng(0)
    seen, gradients = generator.normal(size=(2, 3, 5)), generator.normal(size=(2, 4, 5))
    std, prior = 0.7, np.array([0.1, 0.2, 0.3, 0.4])
    ratios = log_likelihood_ratios(torch.tensor(seen), torch.tensor(gradients), std, rate)
    posterior = np.exp(log_posterior(ratios.numpy(), prior))
    for trial in range(2):
        for observer in range(3):
            density = np.array(
                [
                    (1 - rate) * stats.norm.pdf(seen[trial, observer], 0, std).prod()
                    + rate * stats.norm.pdf(seen[trial, observer], gradient, std).prod()
                    for gradient in gradients[trial]
                ]
            )
            expected = prior * density / (prior * density).sum()
            np.testing.assert_allclose(posterior[trial, observer], expected, rtol=1e-10)


def test_success_among_orthogonal_candidates_has_its_closed_form():
    """With 10,000 games, a difference of four standard errors is an accident of 1 in 15,000."""
    games, m, mu = 10_000, 30, 2.0
    generator = np.random.default_rng(1)
    gradients = mu * torch.eye(m, dtype=torch.float64)[None]
    secrets = generator.integers(m, size=games)
    seen = mu * np.eye(m)[secrets] + generator.normal(size=(games, m))
    ratios = log_likelihood_ratios(torch.tensor(seen)[None], gradients, 1.0)[0].numpy()
    posterior = np.exp(log_posterior(ratios, np.full(m, 1 / m)))
    expected, _ = integrate.quad(
        lambda x: stats.norm.pdf(x - mu) * stats.norm.cdf(x) ** (m - 1), -8, 12
    )
    error = math.sqrt(expected * (1 - expected) / games)
    assert (posterior.argmax(1) == secrets).mean() == pytest.approx(expected, abs=4 * error)
    # The adversary's own belief is as good an estimate.
    assert posterior.max(1).mean() == pytest.approx(expected, abs=4 * error)


@pytest.mark.parametrize(("share", "sign"), [(1.0, 0), (0.8, -1), (1.25, 1)])
def test_scores_are_standard_normal_only_under_the_assumed_noise(share, sign):
    """Kolmogorov and Smirnov's p is below 1e-4 in one of 10,000 honest games."""
    games, m = 4000, 12
    generator = np.random.default_rng(2)
    gradients = generator.normal(size=(games, m, 6))
    secrets = generator.integers(m, size=games)
    chosen = gradients[np.arange(games), secrets]
    seen = torch.tensor(chosen + share * generator.normal(size=chosen.shape))[:, None]
    ratios = log_likelihood_ratios(seen, torch.tensor(gradients), 1.0)[:, 0].numpy()
    posterior = np.exp(log_posterior(ratios, np.full(m, 1 / m)))
    scores = surprise(posterior, secrets, generator.random(games))
    assert (stats.kstest(scores, "norm").pvalue > 1e-4) == (sign == 0)
    assert sign * scores.mean() >= 0


def test_tied_candidates_share_the_probability_by_a_coin():
    posterior, secrets = np.full((2, 4), 0.25), np.array([0, 3])
    np.testing.assert_allclose(
        surprise(posterior, secrets, np.array([0.5, 0.9])), stats.norm.ppf([0.5, 0.9])
    )
