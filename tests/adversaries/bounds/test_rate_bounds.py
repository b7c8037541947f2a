"""Bounds from counted errors agree with brute force, closed forms and each other."""

import numpy as np
import pytest
from games import decisions
from scipy import stats

from adversaries.bounds.lower_bounds import clopper_pearson_bound
from adversaries.bounds.rate_bounds import NoiseFamily, by_mu, by_scale
from adversaries.statistics import gaussian


def mu_gdp_bound(*game):
    return by_mu(clopper_pearson_bound(*game))


def trade_off_bound(*game, family):
    return by_scale(clopper_pearson_bound(*game), family)


def test_rates_no_better_than_chance_prove_nothing():
    game = decisions(50, 100, 50, 100)
    assert mu_gdp_bound(*game, 1e-5, 0.95).epsilon == 0


def test_mu_gdp_converts_an_exact_limit_of_each_rate():
    bound = mu_gdp_bound(*decisions(400, 500, 60, 400), 1e-5, 0.95)
    false = stats.binomtest(60, 400).proportion_ci(0.95, method="exact").high
    missed = stats.binomtest(100, 500).proportion_ci(0.95, method="exact").high
    mu = stats.norm.isf(false) - stats.norm.ppf(missed)
    assert bound.epsilon == pytest.approx(gaussian.epsilon(mu, 1e-5), rel=1e-9)
    mirrored = mu_gdp_bound(*decisions(340, 400, 100, 500), 1e-5, 0.95)
    assert mirrored.epsilon == pytest.approx(bound.epsilon, rel=1e-12)


def gaussian_family(mu):
    return NoiseFamily(
        scales=[float(scale) for scale in np.geomspace(0.1, 100, 3000)],
        miss_rate=lambda scale, rate: float(stats.norm.cdf(stats.norm.isf(rate) - mu / scale)),
        epsilon=lambda scale, delta: gaussian.epsilon(mu / scale, delta),
    )


@pytest.mark.parametrize("claimed", [0.5, 1.0, 3.0])
def test_the_gaussian_trade_off_gives_mu_gdp_whatever_the_claim(claimed):
    game = decisions(400, 500, 60, 400)
    bound = trade_off_bound(*game, 1e-5, 0.95, family=gaussian_family(claimed))
    exact = mu_gdp_bound(*game, 1e-5, 0.95)
    assert exact.epsilon * 0.99 < bound.epsilon <= exact.epsilon
    assert claimed / bound.details["noise_scale_high"] <= exact.details["mu_low"]


def test_where_no_noise_is_refuted_the_trade_off_proves_nothing():
    blind = trade_off_bound(*decisions(50, 100, 50, 100), 1e-5, 0.95, family=gaussian_family(1.0))
    assert (blind.epsilon, blind.reason) == (0.0, None)
    assert "noise_scale_high" not in blind.details


def test_where_all_noise_is_refuted_the_least_counts():
    bound = trade_off_bound(*decisions(500, 500, 0, 500), 1e-5, 0.95, family=gaussian_family(0.01))
    assert bound.epsilon == gaussian.epsilon(0.01 / 0.1, 1e-5)
