"""A family of mechanisms allows the errors that its trade-off curve allows, and no fewer."""

import numpy as np
import pytest
from scipy import stats

from adversaries.bounds.lower_bounds import clopper_pearson_bound
from adversaries.bounds.rate_bounds import by_mu, by_scale
from adversaries.statistics.forecast import simulate
from fedsim.game.mechanisms.noise_family import SCALES, miss_rate, noise_family, scaled
from fedsim.privacy import loss_distribution
from fedsim.privacy.accounting import PLD
from fedsim.privacy.loss_distribution import LossDistribution
from fedsim.privacy.mechanism import Mechanism, Neighbouring, Steps

RATES = np.array([1e-4, 0.01, 0.2, 0.5, 0.9])


@pytest.mark.parametrize("mu", [0.3, 2.0])
@pytest.mark.parametrize("neighbouring", Neighbouring)
def test_full_batches_have_the_gaussian_trade_off(mu, neighbouring):
    mechanism = Mechanism.alike(4 / mu, 16, neighbouring=neighbouring)
    for rate in RATES:
        exact = stats.norm.cdf(stats.norm.isf(rate) - mu)
        found = miss_rate(mechanism, rate)
        assert found <= exact + 1e-12
        assert found == pytest.approx(exact, abs=2e-3)


def test_sampled_steps_have_the_trade_off_of_their_likelihood_ratio():
    one = np.ones((1, 50))
    draw = np.random.default_rng(0)
    played = simulate(one, 0 * one, one, one, 0.1, draw, games=50_000)
    for threshold in (-0.5, 0.0, 0.5, 2.0):
        rate = float((played.world_d_prime > threshold).mean())
        missed = float((played.world_d <= threshold).mean())
        # Two Monte-Carlo rates of 50 000 each.
        assert miss_rate(Mechanism.alike(1.0, 50, 0.1), rate) == pytest.approx(missed, abs=0.02)


def test_more_noise_leaves_more_misses():
    mechanism = Mechanism.alike(1.0, 50, 0.1)
    missed = [miss_rate(scaled(mechanism, scale), 0.1) for scale in SCALES[::64]]
    assert missed == sorted(missed)
    assert missed[0] < 0.01
    assert missed[-1] > 0.89


def test_the_bound_of_full_batches_is_that_of_mu_gdp():
    worlds = np.arange(2000) % 2 == 0
    noise = np.random.default_rng(1).standard_normal(2000)
    log_odds = np.where(worlds, 0.5, -0.5) + noise
    counted = clopper_pearson_bound(worlds, log_odds, 1e-5, 0.95)
    exact = by_mu(counted)
    family = noise_family(Mechanism.alike(30**0.5, 30))
    found = by_scale(counted, family)
    assert 0.96 * exact.epsilon < found.epsilon < exact.epsilon


def test_epsilon_of_the_claimed_noise_is_the_accountants():
    mechanism = Mechanism.alike(1.0, 50, 0.1)
    assert noise_family(mechanism).epsilon(1.0, 1e-5) == PLD.epsilon(mechanism, 1e-5)


def test_too_little_noise_to_tell_refutes_nothing():
    assert miss_rate(Mechanism.alike(1e-3, 10, 0.1), 1e-3) == 0.0
    family = noise_family(Mechanism.alike(1e-5, 10, 0.1))
    assert min(family.scales) * 1e-5 >= 1e-6


def test_what_a_transform_rounds_moves_no_line(monkeypatch):
    """Losses 0 and 1, beside a mass below 0, and losses whose e^-loss overflows."""
    masses = np.zeros(805)  # of the losses -800, -799, ... 4
    masses[[800, 801, 803]] = 0.5, 0.5, -0.05
    rounded = LossDistribution(1.0, -800, masses, 0.0)
    monkeypatch.setattr(loss_distribution, "composed", lambda _: (rounded, rounded))
    only_here = Mechanism.alike(1.2345, 1)  # lines are kept by their mechanism
    assert miss_rate(only_here, 0.1) == pytest.approx(1 - 0.1 * np.e)


def test_a_family_ends_where_double_precision_does():
    """At the least noise of all steps below, at the largest above."""
    quiet, loud = noise_family(Mechanism.alike(1e-5, 1)), noise_family(Mechanism.alike(1e99, 1))
    assert min(quiet.scales) == pytest.approx(0.1, rel=0.03)
    assert max(loud.scales) == pytest.approx(10, rel=0.03)
    both = noise_family(Mechanism((Steps(1e-5), Steps(1e99))))
    assert (both.scales[0], both.scales[-1]) == (quiet.scales[0], loud.scales[-1])
    assert list(noise_family(Mechanism.alike(1.0, 1)).scales) == list(SCALES)
