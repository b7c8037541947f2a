"""The bands of a trade-off curve hold at all thresholds together, as often as they say."""

import numpy as np
import pytest
from scipy.stats import norm

from adversaries.statistics.trade_off_bands import simultaneous_lower, trade_off_band


def test_the_chance_of_any_error_has_its_closed_form_for_two_trials():
    for confidence in (0.8, 0.99, 0.9999):
        error = (1 - confidence) / 2
        assert simultaneous_lower(1, confidence)[1] == pytest.approx(error, rel=0.02)
        _, first, second = simultaneous_lower(2, confidence)
        # Both below the second limit, or one below the first and the other above the second.
        chance = second**2 + 2 * first * (1 - second)
        assert chance == pytest.approx(error, rel=0.02)
        assert chance <= error * (1 + 1e-9)


@pytest.mark.parametrize("trials", [5, 60, 400])
def test_limits_of_uniform_numbers_fail_as_often_as_they_say(trials):
    """Of 20,000 samples: four standard errors are an accident of 1 in 15,000."""
    samples, confidence = 20_000, 0.9
    low = simultaneous_lower(trials, confidence)
    ordered = np.sort(np.random.default_rng(0).random((samples, trials)), axis=1)
    # The k-th smallest is above the limit of k, and below one less that of the rest.
    wrong = (ordered < low[1:]).any(axis=1) | (ordered > 1 - low[:0:-1]).any(axis=1)
    error = np.sqrt(0.09 / samples)
    # Both sides may fail at once, which the limits count twice.
    assert 0.1 - 4 * error - 0.1**2 < wrong.mean() < 0.1 + 4 * error


@pytest.mark.parametrize("rounded", [False, True], ids=["scores", "ties"])
def test_the_band_of_a_gaussian_game_holds_its_curve(rounded):
    """At 99 %, 400 games: more than 14 failures are an accident of 1 in 100,000."""
    mu, trials, failures = 1.0, 120, 0
    generator = np.random.default_rng(1)
    worlds = np.arange(trials) % 2 == 0
    for _ in range(400):
        scores = generator.normal(size=trials) + mu * worlds
        if rounded:
            scores = scores.round()
        band = trade_off_band(worlds, scores, 0.99)
        thresholds = np.unique(scores)[::-1]
        # Rounded up to a threshold: the score was at least half below it.
        at = thresholds - 0.5 if rounded else thresholds
        false, true = norm.sf(at), norm.sf(at - mu)
        held = (band.false_low <= false) & (false <= band.false_high)
        held &= (band.true_low <= true) & (true <= band.true_high)
        failures += not held.all()
    assert failures <= 14


def test_the_lower_edge_of_an_honest_game_stays_below_theory_and_less_noise_crosses_it():
    worlds, generator = np.arange(1000) % 2 == 0, np.random.default_rng(2)
    crossed = []
    for share in (1.0, 0.5):
        scores = share * generator.normal(size=1000) + worlds
        band = trade_off_band(worlds, scores, 0.9999, 65)
        allowed = norm.cdf(norm.ppf(band.false_high) + 1.0)
        crossed.append(bool((band.true_low > allowed).any()))
        assert len(band.false) <= 65
    assert crossed == [False, True]
