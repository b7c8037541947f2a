"""Bounds from counted errors agree with brute force, closed forms and each other."""

from itertools import pairwise

import numpy as np
import pytest
from games import decisions
from scipy import integrate, stats

from adversaries.bounds.rate_bounds import (
    LARGEST_EPSILON,
    NoiseFamily,
    jeffreys_bound,
    mu_gdp_bound,
    trade_off_bound,
)
from adversaries.statistics import gaussian


@pytest.mark.parametrize(
    ("true", "on_d", "false", "others", "delta"),
    [(30, 40, 5, 50, 0.0), (40, 40, 0, 50, 1e-5), (300, 500, 190, 400, 0.01), (9, 9, 1, 900, 0.1)],
)
def test_the_credible_bound_leaves_the_rest_to_the_region(
    true: int, on_d: int, false: int, others: int, delta: float
) -> None:
    """The posterior of FNR below what FPR allows, by scipy's adaptive rule over FPR itself."""
    bound = jeffreys_bound(*decisions(true, on_d, false, others), delta, 0.95)
    false_positives = stats.beta(false + 0.5, others - false + 0.5)
    misses = stats.beta(on_d - true + 0.5, true + 0.5)
    grown = np.exp(bound.epsilon)

    def beyond(rate: float) -> float:
        least = max(1 - delta - grown * rate, (1 - delta - rate) / grown)
        return float(false_positives.pdf(rate) * misses.cdf(max(least, 0.0)))

    # In pieces, about the corner and the posterior; its density may be infinite at 0.
    marks = false_positives.ppf([1e-12, 1e-6, 0.01, 0.5, 0.99, 1 - 1e-6, 1 - 1e-12])
    marks = np.sort(np.append(marks, (1 - delta) / (1 + grown)))
    total = sum(
        integrate.quad(beyond, low, high, epsabs=1e-12, limit=200)[0]
        for low, high in pairwise(marks)
    )
    assert total == pytest.approx(0.95, abs=2e-6)
    assert bound.kind == "credible"
    assert bound.epsilon > 0


def test_the_credible_bound_does_not_know_which_world_is_called_d() -> None:
    one = jeffreys_bound(*decisions(45, 60, 5, 80), 1e-3, 0.9)
    other = jeffreys_bound(*decisions(75, 80, 15, 60), 1e-3, 0.9)
    assert one.epsilon == pytest.approx(other.epsilon, rel=1e-7)


def test_an_epsilon_whose_exponential_is_no_number_is_not_looked_for() -> None:
    assert jeffreys_bound(*decisions(60, 60, 0, 60), 0.0, 1e-300).epsilon == LARGEST_EPSILON


def test_with_many_trials_the_credible_bound_is_the_epsilon_of_the_rates() -> None:
    bound = jeffreys_bound(*decisions(750_000, 1_000_000, 250_000, 1_000_000), 0.0, 0.95)
    assert 0.98 * np.log(3) < bound.epsilon < np.log(3)


def test_rates_no_better_than_chance_prove_nothing() -> None:
    game = decisions(50, 100, 50, 100)
    assert jeffreys_bound(*game, 1e-5, 0.95).epsilon == 0
    assert mu_gdp_bound(*game, 1e-5, 0.95).epsilon == 0


def test_mu_gdp_converts_an_exact_limit_of_each_rate() -> None:
    bound = mu_gdp_bound(*decisions(400, 500, 60, 400), 1e-5, 0.95)
    false = stats.binomtest(60, 400).proportion_ci(0.95, method="exact").high
    missed = stats.binomtest(100, 500).proportion_ci(0.95, method="exact").high
    mu = stats.norm.isf(false) - stats.norm.ppf(missed)
    assert bound.epsilon == pytest.approx(gaussian.epsilon(mu, 1e-5), rel=1e-9)
    mirrored = mu_gdp_bound(*decisions(340, 400, 100, 500), 1e-5, 0.95)
    assert mirrored.epsilon == pytest.approx(bound.epsilon, rel=1e-12)


def gaussian_family(mu: float) -> NoiseFamily:
    return NoiseFamily(
        scales=[float(scale) for scale in np.geomspace(0.1, 100, 3000)],
        miss_rate=lambda scale, rate: float(stats.norm.cdf(stats.norm.isf(rate) - mu / scale)),
        epsilon=lambda scale, delta: gaussian.epsilon(mu / scale, delta),
    )


@pytest.mark.parametrize("claimed", [0.5, 1.0, 3.0])
def test_the_gaussian_trade_off_gives_mu_gdp_whatever_the_claim(claimed: float) -> None:
    game = decisions(400, 500, 60, 400)
    bound = trade_off_bound(*game, 1e-5, 0.95, gaussian_family(claimed))
    exact = mu_gdp_bound(*game, 1e-5, 0.95)
    assert exact.epsilon * 0.99 < bound.epsilon <= exact.epsilon
    assert claimed / bound.details["noise_scale_high"] <= exact.details["mu_low"]


def test_where_no_noise_is_refuted_the_trade_off_proves_nothing() -> None:
    blind = trade_off_bound(*decisions(50, 100, 50, 100), 1e-5, 0.95, gaussian_family(1.0))
    assert (blind.epsilon, blind.reason) == (0.0, None)
    assert "noise_scale_high" not in blind.details


def test_where_all_noise_is_refuted_the_least_counts() -> None:
    bound = trade_off_bound(*decisions(500, 500, 0, 500), 1e-5, 0.95, gaussian_family(0.01))
    assert bound.epsilon == gaussian.epsilon(0.01 / 0.1, 1e-5)
