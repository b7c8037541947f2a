"""The privacy profile agrees with closed forms and with its definition, and its bound holds."""

import math

import numpy as np
import pytest
from games import Bools, Floats, gaussian_game, rng_of
from scipy import stats

from adversaries.bounds.privacy_profile import privacy_profile_bound, privacy_profiles
from adversaries.statistics import gaussian

DELTA = 1e-3


def game(mu: float, trials: int, seed: int) -> tuple[Bools, Floats]:
    worlds, (odds,) = gaussian_game(rng_of(seed), 1, trials, mu)
    return worlds, odds


def test_the_profile_of_a_gaussian_mechanism_is_its_closed_form() -> None:
    epsilons = np.linspace(0, 4, 9)
    exact = gaussian.deltas(1.5, epsilons)
    for profile in privacy_profiles(*game(1.5, 400_000, 0), epsilons, 0.999).values():
        assert np.all((profile.low <= exact) & (exact <= profile.high))
        assert np.abs(profile.estimate - exact).max() < 5e-3


def test_the_band_is_empirical_bernsteins() -> None:
    worlds, log_odds = game(2.0, 60, 1)
    epsilons = np.array([0.0, 0.7, 3.0, 50.0])
    found = privacy_profiles(worlds, log_odds, epsilons, 0.9)
    for name, ratios in (("world_d", log_odds[worlds]), ("world_d_prime", -log_odds[~worlds])):
        for place, epsilon in enumerate(epsilons):
            lost = np.maximum(1 - np.exp(epsilon - ratios), 0)
            logarithm = math.log(2 / 0.05)
            reach = math.sqrt(2 * lost.var(ddof=1) * logarithm / 30) + 7 * logarithm / (3 * 29)
            profile = found[name]
            assert profile.estimate[place] == pytest.approx(lost.mean(), abs=1e-12)
            assert profile.low[place] == pytest.approx(max(0, lost.mean() - reach), abs=1e-12)
            assert profile.high[place] == pytest.approx(min(1, lost.mean() + reach), abs=1e-12)


def test_log_odds_of_any_size_leave_the_profile_finite() -> None:
    worlds = np.arange(6) < 3
    log_odds = np.array([5e4, 800.0, -900.0, -5e4, 3.0, 700.0])
    found = privacy_profiles(worlds, log_odds, np.array([0.0, 750.0, 1e6]), 0.95)
    assert found["world_d"].estimate.tolist() == pytest.approx([2 / 3, 2 / 3, 0])
    assert 0 <= privacy_profile_bound(worlds, log_odds, DELTA, 0.95).epsilon < math.inf


def test_the_bound_is_the_last_epsilon_whose_limit_stays_above_delta() -> None:
    worlds, log_odds = game(3.0, 2000, 2)
    bound = privacy_profile_bound(worlds, log_odds, DELTA, 0.95)
    assert bound.trusts_noise
    # Each direction has half of alpha, as a two-sided band has at either side.
    limits = []
    for epsilon in (bound.epsilon, bound.epsilon * 1.002 + 0.002):
        band = privacy_profiles(worlds, log_odds, np.array([epsilon]), 0.95)
        limits.append(max(profile.low[0] for profile in band.values()))
    assert limits[0] > DELTA >= limits[1]


def test_the_bound_nears_epsilon_with_many_trials() -> None:
    bound = privacy_profile_bound(*game(1.0, 1_000_000, 3), 0.01, 0.95)
    assert 0.95 < bound.epsilon / gaussian.epsilon(1.0, 0.01) < 1


def test_less_noise_than_claimed_is_not_seen_for_what_it_is() -> None:
    """What trusts the noise: Lambda of half the noise claims half the signal, and so does this."""
    worlds, log_odds = game(3.0, 20_000, 4)
    honest = privacy_profile_bound(worlds, log_odds, DELTA, 0.95)
    claimed = privacy_profile_bound(worlds, log_odds / 4, DELTA, 0.95)
    assert claimed.epsilon < honest.epsilon / 2


def test_a_profile_without_noise_or_trials_gives_a_reason() -> None:
    worlds = np.array([True, True, False, False])
    endless = privacy_profile_bound(worlds, np.array([np.inf, 1, -1, -np.inf]), DELTA, 0.95)
    assert (endless.epsilon, endless.reason) == (0.0, "infinite log-odds: a step without noise")
    few = privacy_profile_bound(worlds[:3], np.zeros(3), DELTA, 0.95)
    assert few.reason == "fewer than two trials of a world"
    assert list(privacy_profiles(worlds[:3], np.zeros(3), np.zeros(1), 0.95)) == ["world_d"]


def test_the_profiles_bound_rarely_claims_too_much() -> None:
    """At trials so few and losses so large that the inequality has little slack."""
    wrong = 0
    for seed in range(300):
        bound = privacy_profile_bound(*game(6.0, 100, seed), 0.9, 0.6)
        wrong += bound.epsilon > gaussian.epsilon(6.0, 0.9)
    assert stats.binom.sf(wrong - 1, 300, 0.4) > 1e-4
