"""What trusts the noise and what does not agree where all is well, and differ where it is not."""

import numpy as np
import numpy.typing as npt
import pytest

from adversaries.bounds import agreement
from adversaries.statistics.forecast import simulate
from adversaries.statistics.intervals import ALARM_CONFIDENCE

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


def claimed(mu: float, noise: float, trials: int, seed: int) -> tuple[Bools, Floats]:
    """Log-odds by a claim of signal mu, where the noise is `noise` times the claimed."""
    worlds = np.arange(trials) % 2 == 0
    draw = np.random.default_rng(seed).standard_normal(trials)
    return worlds, np.where(worlds, 0.5, -0.5) * mu**2 + mu * noise * draw


def adaptive(trials: int, rounds: int, seed: int) -> tuple[Bools, Floats]:
    """Exact log-odds of rounds whose signal depends on what earlier rounds released."""
    worlds = np.arange(trials) % 2 == 0
    draw = np.random.default_rng(seed)
    log_odds = np.zeros(trials)
    for _ in range(rounds):
        mu = 0.2 + 0.8 / (1 + np.exp(-log_odds))
        log_odds += np.where(worlds, 0.5, -0.5) * mu**2 + mu * draw.standard_normal(trials)
    return worlds, log_odds


def sampled(q: float, taken_for: float, trials: int, seed: int) -> tuple[Bools, Floats]:
    """Log-odds of an adversary that takes the sampling rate for another; exact if it is right."""
    half, steps, worlds = trials // 2, 20, np.arange(trials) < trials // 2
    draw = np.random.default_rng(seed)
    joined = worlds[:, None] & (draw.random((2 * half, steps)) < q)
    ratio = joined + draw.standard_normal((2 * half, steps)) - 0.5
    return worlds, np.log(1 - taken_for + taken_for * np.exp(ratio)).sum(axis=1)


@pytest.mark.parametrize("mu", [0.1, 0.7, 3.0])
def test_exact_beliefs_come_true_as_often_as_they_say(mu: float) -> None:
    comparisons = [agreement.calibration(*claimed(mu, 1.0, 60, seed), 0.95) for seed in range(300)]
    # Bernstein's inequality is far from tight: at 0.05 it errs less than one time in fifty.
    assert sum(comparison is not None and not comparison.agree for comparison in comparisons) <= 6


@pytest.mark.parametrize("trials", [20, 200])
@pytest.mark.parametrize("mu", [0.3, 1.0, 2.0, 4.5, 8.0])
def test_balanced_worlds_reject_true_beliefs_no_more_often_than_coins_may(
    mu: float, trials: int
) -> None:
    games = (claimed(mu, 1.0, trials, seed) for seed in range(2000))
    comparisons = [agreement.calibration(*game, 0.9) for game in games]
    # 200 are allowed. Of these games Bernstein's inequality rejects 7 at most.
    assert sum(comparison is not None and not comparison.agree for comparison in comparisons) <= 10


def test_the_p_value_is_bernsteins() -> None:
    """Beliefs of three in four, of which one in ten comes true, and one of near certainty."""
    worlds, even = np.arange(10) < 1, np.log(3)
    comparison = agreement.calibration(worlds, np.full(10, even), 0.989)
    assert comparison is not None
    # (b - p) is 1/4 once and -3/4 nine times; its variance is 3/16 each time.
    total, variance = 1 / 4 - 9 * 3 / 4, 10 * 3 / 16
    p_value = 2 * np.exp(-(total**2) / (2 * variance + 2 * abs(total) / 3))
    assert comparison.details["p_value"] == pytest.approx(p_value, rel=1e-12)
    assert comparison.details["sum"] == pytest.approx(even * total)
    assert comparison.details["standard_deviation"] == pytest.approx(even * np.sqrt(variance))
    assert 0.01 < p_value < 0.011
    assert (comparison.agree, comparison.surer) == (False, False)
    surer = agreement.calibration(worlds, np.full(10, even), 0.99)
    assert surer is not None
    assert surer.agree


def test_great_certainty_weighs_no_more_than_the_largest_weight() -> None:
    worlds, log_odds = np.arange(10) < 2, np.full(10, np.log(3))
    log_odds[0], log_odds[9] = 4.0, 9.0  # once right, once wrong
    comparison = agreement.calibration(worlds, log_odds, 0.95)
    assert comparison is not None
    believed = 1 / (1 + np.exp(-log_odds))
    weights = np.array([4.0, *[np.log(3)] * 8, 4.0])
    total = float((worlds - believed) @ weights)
    variance = float((believed * (1 - believed)) @ weights**2)
    p_value = 2 * np.exp(-(total**2) / (2 * variance + 2 * 4 * abs(total) / 3))
    assert comparison.details["p_value"] == pytest.approx(p_value, rel=1e-12)
    assert comparison.details["sum"] == pytest.approx(total)
    assert p_value < 1


def test_beliefs_too_weak_to_be_squared_are_compared_as_others_are() -> None:
    worlds, log_odds = claimed(0.1, 1.0, 60, 0)
    tiny = agreement.calibration(worlds, 1e-200 * log_odds, 0.95)
    small = agreement.calibration(worlds, 1e-9 * log_odds, 0.95)
    assert tiny is not None
    assert small is not None
    assert tiny.details["p_value"] == pytest.approx(small.details["p_value"], rel=1e-6)


def test_beliefs_of_adaptive_and_of_sampled_rounds_are_calibrated_too() -> None:
    for seed in range(20):
        for game in (adaptive(1000, 10, seed), sampled(0.1, 0.1, 1000, seed)):
            comparison = agreement.calibration(*game, ALARM_CONFIDENCE)
            assert comparison is not None
            assert comparison.agree


@pytest.mark.parametrize(("noise", "surer"), [(0.5, True), (2.0, False)])
def test_noise_other_than_claimed_is_seen_in_both_comparisons(noise: float, surer: bool) -> None:
    game = claimed(0.65, noise, 400, 1)
    beliefs = agreement.calibration(*game, ALARM_CONFIDENCE)
    spread = agreement.mu(*game, 0.65, ALARM_CONFIDENCE)
    for comparison in (beliefs, spread):
        assert comparison is not None
        assert (comparison.agree, comparison.surer) == (False, surer)
    honest = agreement.mu(*claimed(0.65, 1.0, 400, 1), 0.65, ALARM_CONFIDENCE)
    assert honest is not None
    assert honest.agree
    assert honest.details["low"] < 0.65 < honest.details["high"]


def test_a_sampling_rate_other_than_believed_is_seen() -> None:
    comparison = agreement.calibration(*sampled(0.5, 0.05, 1000, 2), ALARM_CONFIDENCE)
    assert comparison is not None
    assert (comparison.agree, comparison.surer) == (False, True)


def test_one_world_compares_nothing() -> None:
    worlds, log_odds = np.ones(9, bool), np.arange(9.0)
    assert agreement.calibration(worlds, log_odds, 0.95) is None
    assert agreement.mu(worlds, log_odds, 1.0, 0.95) is None


def test_log_odds_that_are_not_normal_have_no_mu_to_compare() -> None:
    worlds = np.arange(400) % 2 == 0
    log_odds = np.random.default_rng(3).standard_exponential(400) + worlds
    assert agreement.mu(worlds, log_odds, 1.0, 0.95) is None
    assert agreement.mu(worlds, np.where(worlds, np.inf, -np.inf), 1.0, 0.95) is None


def test_certainty_that_errs_once_is_a_disagreement() -> None:
    worlds = np.arange(40) % 2 == 0
    log_odds = np.where(worlds, 30.0, -30.0)
    sure = agreement.calibration(worlds, log_odds, 0.95)
    assert sure is not None
    assert sure.agree
    log_odds[:6] *= -1
    wrong = agreement.calibration(worlds, log_odds, 0.95)
    assert wrong is not None
    assert (wrong.agree, wrong.surer) == (False, False)


def test_simulated_games_of_a_campaign_are_calibrated() -> None:
    one = np.ones((1, 30))
    played = simulate(one, 0 * one, one, one, 0.2, np.random.default_rng(4), games=2000)
    worlds = np.arange(4000) < 2000
    log_odds = np.concatenate([played.world_d, played.world_d_prime])
    comparison = agreement.calibration(worlds, log_odds, ALARM_CONFIDENCE)
    assert comparison is not None
    assert comparison.agree


def test_worlds_that_are_the_wrong_way_round_are_no_sign_of_too_little_noise() -> None:
    worlds = np.arange(6) < 3
    comparison = agreement.mu(worlds, np.where(worlds, -1.0, 1.0), 0.65, ALARM_CONFIDENCE)
    assert comparison is not None
    assert (comparison.agree, comparison.surer) == (False, False)
