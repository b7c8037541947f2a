"""Risks from the trade-off curve, against closed forms, simulated games and riskcal."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from adversaries.errors import InputError
from fedsim.privacy import calibration, identifiability, risks
from fedsim.privacy.mechanism import Mechanism, Neighbouring

RATES = np.array([1e-4, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.8, 0.99])


def test_full_batches_have_the_curve_of_a_gaussian():
    """Dong, Roth and Su (2022), equation 6."""
    found = risks.true_positives(Mechanism.alike(2.0, 9), RATES)
    np.testing.assert_allclose(found, ndtr(ndtri(RATES) + 1.5), atol=1e-9, rtol=0)


def test_one_sampled_step_has_the_curve_of_its_mixture():
    """N(0, 1) against .7 N(0, 1) + .3 N(1, 1), by thresholds; both ways round, made concave."""
    rate = 0.3
    thresholds = np.linspace(-10, 11, 20_001)
    without = ndtr(-thresholds), (1 - rate) * ndtr(-thresholds) + rate * ndtr(1 - thresholds)
    back = (1 - rate) * ndtr(thresholds) + rate * ndtr(thresholds - 1), ndtr(thresholds)
    slopes = np.exp(np.linspace(-4, 4, 2_001))  # of lines that touch the curve
    heights = [max((y - slope * x).max() for x, y in (without, back)) for slope in slopes]
    exact = (slopes[:, None] * RATES + np.array(heights)[:, None]).min(axis=0)
    found = risks.true_positives(Mechanism.alike(1.0, 1, rate), RATES)
    np.testing.assert_allclose(found, exact, atol=1e-5, rtol=0)


def test_no_simulated_test_of_sampled_steps_beats_the_curve_and_the_best_one_reaches_it():
    """The likelihood ratio of a million games: the standard error of a share is at most 5e-4."""
    games, steps, rate, noise = 1_000_000, 4, 0.25, 0.9
    generator = np.random.default_rng(0)

    def log_ratio(outputs):
        grown = np.exp((outputs - 0.5) / noise**2)
        return np.log1p(rate * (grown - 1)).sum(axis=1)

    coins = generator.random((games, steps)) < rate
    with_record = log_ratio(coins + noise * generator.standard_normal((games, steps)))
    without = log_ratio(noise * generator.standard_normal((games, steps)))
    allowed = np.array([0.01, 0.05, 0.1, 0.2, 0.4])
    reached = (with_record[:, None] > np.quantile(without, 1 - allowed)).mean(axis=0)
    found = risks.true_positives(Mechanism.alike(noise, steps, rate), allowed)
    assert (reached <= found + 4 * 5e-4).all()
    assert (reached >= found - 4 * 5e-4)[:3].all()  # beyond, the other direction is worse


@given(
    noise=st.floats(0.5, 5),
    steps=st.integers(1, 50),
    rate=st.floats(0.01, 1),
    neighbouring=st.sampled_from(Neighbouring),
)
@settings(max_examples=8, deadline=None)
def test_the_curve_is_concave_above_guessing_and_agrees_with_the_advantage(
    noise, steps, rate, neighbouring
):
    mechanism = Mechanism.alike(noise, steps, rate, neighbouring)
    rates = np.linspace(0, 1, 51)
    found = risks.true_positives(mechanism, rates)
    assert (found >= rates).all() and (found <= 1).all()
    assert (np.diff(found, 2) <= 1e-9).all()
    assert (found - rates).max() <= identifiability.rho_alpha(mechanism) + 1e-9
    assert (found - rates).max() >= identifiability.rho_alpha(mechanism) - 1 / 50


def test_a_mechanism_without_noise_or_without_a_distribution_has_an_upper_bound():
    assert risks.success(Mechanism.alike(0.0, 3), 0.001) == 1
    assert risks.success(Mechanism.alike(0.0, 3, 0.1), 0.001) == pytest.approx(0.001 + 0.271)
    little = Mechanism.alike(0.02, 50, 0.5)
    assert risks.success(little, 0.001) <= 1
    assert risks.success(little, 0.001) >= 0.001


def test_riskcal_has_the_same_curve():
    riskcal = pytest.importorskip("riskcal")
    from dp_accounting.pld import privacy_loss_distribution  # noqa: PLC0415

    for noise, steps, rate in ((1, 10, 0.1), (2, 50, 0.5), (5, 1000, 0.05), (1, 1, 0.3)):
        losses = privacy_loss_distribution.from_gaussian_mechanism(
            noise, sampling_prob=rate, use_connect_dots=True
        ).self_compose(steps)
        theirs = [1 - riskcal.analysis.get_beta_from_pld(losses, float(one)) for one in RATES]
        found = risks.true_positives(Mechanism.alike(noise, steps, rate), RATES)
        np.testing.assert_allclose(found, theirs, atol=1e-3, rtol=0)


def test_calibration_to_a_risk_has_the_least_noise_that_meets_it():
    """A Gaussian's multiplier follows from mu = Phi^-1(risk) - Phi^-1(baseline)."""
    mu = ndtri(0.005) - ndtri(0.001)
    found = calibration.noise_multiplier(calibration.success_at_most(0.005, 0.001), 30)
    assert found == pytest.approx(np.sqrt(30) / mu, rel=1e-8)
    sampled = calibration.noise_multiplier(calibration.success_at_most(0.005, 0.001), 30, 0.1)
    reached = risks.success(Mechanism.alike(sampled, 30, 0.1), 0.001)
    assert 0.005 * (1 - 1e-6) <= reached <= 0.005


@pytest.mark.parametrize(
    ("risk", "baseline", "why"), [(0.01, 0.01, "largest risk"), (0.5, 0.0, "baseline risk is 0")]
)
def test_a_risk_that_no_release_can_have_is_refused(risk, baseline, why):
    with pytest.raises(InputError, match=why):
        calibration.success_at_most(risk, baseline)
