"""What an audit would have seen is what its own test sees of noise that falls as short."""

import numpy as np
import pytest

from adversaries.attacks.residuals import noise_test
from adversaries.statistics import estimators, gaussian
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.run import detectable
from fedsim.game.observers.noise_watch import SUM, NoiseWatch

ERROR, GAMES = 1 - ALARM_CONFIDENCE, 400
FEWEST = 0.91
"""Of 400 games that each raise the alarm with 95 %, fewer do so once in 6,000 times."""


def _trials(share, mu, trials, rng):
    """Return worlds and log-odds of trials whose noise is a share of the claimed."""
    worlds, true = np.arange(trials) % 2 == 0, mu / share
    return worlds, np.where(worlds, 0.5, -0.5) * true**2 + true * rng.standard_normal(trials)


@pytest.mark.parametrize("freedom", [30, 2000, 10**6])
def test_a_small_sum_of_squares_is_seen_as_often_as_is_said(freedom):
    share = detectable.by_energy(freedom, ERROR / 4)
    squares = share**2 * np.random.default_rng(freedom).chisquare(freedom, GAMES)
    tests = [noise_test(np.array([[each]]), np.array([[freedom]]), 0.95) for each in squares]
    assert FEWEST <= np.mean([test.p_value < ERROR for test in tests if test]) < 0.99
    # What is summed beside the noise, such as rounding, hides some of it.
    assert detectable.by_energy(freedom, ERROR, beside=0.1) < detectable.by_energy(freedom, ERROR)


@pytest.mark.parametrize(("mu", "trials"), [(0.78, 1000), (2.0, 200)])
def test_too_many_trials_won_are_seen_as_often_as_is_said(mu, trials):
    limit, rng = gaussian.advantage(mu), np.random.default_rng(trials)
    share = detectable.by_wins(mu, limit, trials, ERROR / 2)
    found = [
        estimators.advantage(*_trials(share, mu, trials, rng), ALARM_CONFIDENCE)
        for _ in range(GAMES)
    ]
    assert FEWEST <= np.mean([each.interval.low > limit for each in found]) < 0.99


@pytest.mark.parametrize(("size", "signal"), [(500, 0.0), (500, 1.0), (2000, 0.5)])
def test_noise_that_is_watched_without_records_is_seen(size, signal):
    """Records fill half of the coordinates, as the noise that is claimed leaves them."""

    def watched(share, seed):
        rng, watch = np.random.default_rng(seed), NoiseWatch()
        records = signal * rng.standard_normal(size) * (np.arange(size) % 2)
        for _ in range(6):
            watch.observe(records + share * rng.standard_normal(size), 1.0, {}, 1.0)
        return watch

    for seed in range(5):
        share = detectable.by_limit(watched(1.0, seed).limits(ALARM_CONFIDENCE)[SUM])
        assert 0.5 < share < 1
        assert watched(share, 100 + seed).accused(ALARM_CONFIDENCE) == [SUM]


def test_what_nothing_could_show_is_nothing():
    assert detectable.by_energy(0, ERROR) == 0
    assert detectable.by_wins(0.5, 0.2, 8, ERROR / 2) == 0  # all eight won prove less
    assert detectable.by_limit(1.5) == 0
