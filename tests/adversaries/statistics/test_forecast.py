"""Forecasts agree with closed forms and with the mechanisms that they speak of."""

from statistics import NormalDist

import numpy as np
import pytest
from games import balanced, rng_of
from scipy import stats

from adversaries.errors import InputError
from adversaries.statistics import forecast
from adversaries.statistics.forecast import fit, predict, sampled_scores, scores, simulate, trial_mu
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism, Neighbouring

PHI = NormalDist().cdf


# Predictions.


@pytest.mark.parametrize(
    ("mu", "expected"),
    [(0.6535891631872568, 0.2561767), (0.3426508180245408, 0.13603209767419933)],
)
def test_under_noise_scaled_to_the_sensitivity_only_the_multiplier_counts(mu, expected):
    sensitivities = np.random.default_rng(0).uniform(0.01, 3, (20, 30))
    predicted = predict(sensitivities, np.sqrt(30) / mu * sensitivities)
    assert predicted.mu == pytest.approx(mu, rel=1e-12)
    assert predicted.advantage == pytest.approx(expected, abs=1e-7)
    assert predicted.deterministic


def test_a_prediction_from_random_sensitivities_averages_trials_and_says_so():
    predicted = predict(np.array([[3.0, 4.0], [0.0, 0.0]]), np.full((2, 2), 5.0))
    np.testing.assert_allclose(predicted.trial_mu, [1.0, 0.0])
    assert predicted.mu == pytest.approx(np.sqrt(0.5))
    assert predicted.advantage == pytest.approx((2 * PHI(0.5) - 1) / 2)
    assert not predicted.deterministic


def test_trials_are_alike_up_to_the_rounding_of_float32_gradients():
    alike, unlike = (np.array([[1.0], [1 + gap]]) for gap in (1e-7, 1e-5))
    assert predict(alike, np.ones((2, 1))).deterministic
    assert not predict(unlike, np.ones((2, 1))).deterministic


def adaptive_game(seed, trials, **wrong):
    """Twelve steps that show less of the record the surer the adversary is of it.

    noise, signal: by what factor there is more of them than the log-odds assume.
    """
    rng, worlds = np.random.default_rng(seed), balanced(trials)
    odds, log_odds, ratios = np.zeros(trials), [], []
    for _ in range(12):
        ratio = np.where(odds > 0.3, rng.choice([0.0, 0.1], trials, p=[0.1, 0.9]), 0.3)
        shown = wrong.get("signal", 1) * np.where(worlds, 0.5, -0.5) * ratio**2
        odds = odds + shown + wrong.get("noise", 1) * ratio * rng.standard_normal(trials)
        log_odds.append(odds)
        ratios.append(ratio)
    return {
        "worlds": worlds,
        "log_odds": np.array(log_odds).T,
        "sensitivities": 3 * np.array(ratios).T,
        "noise_std": np.full((trials, 12), 3.0),
    }


def p_values(game):
    found = fit(game["worlds"], scores(**game, generator=rng_of(1)))
    return [each["p_value"] for each in found.values() if each]


def test_the_fit_of_steps_that_depend_on_earlier_noise_does_not_cry_wolf():
    """A law of the last log-odds, as of trials that are alike, would be rejected at once."""
    found = [p for seed in range(150) for p in p_values(adaptive_game(seed, 60))]
    assert stats.kstest(found, "uniform").pvalue > 1e-3
    game = adaptive_game(0, 20_000)
    mu = trial_mu(game["sensitivities"], game["noise_std"])
    last = (game["log_odds"][:, -1] / mu - np.where(game["worlds"], 0.5, -0.5) * mu)[mu > 0]
    assert stats.kstest(last, "norm").pvalue < 1e-9
    assert min(p_values(game)) > 1e-3


def test_the_fit_starts_from_even_odds():
    game = adaptive_game(2, 2000)
    assert min(p_values(game)) > 1e-3
    game["log_odds"] += np.log(9)
    assert min(p_values(game)) < 1e-9


@pytest.mark.parametrize("wrong", [{"noise": 0.75}, {"noise": 1.3}, {"signal": 3.0}])
def test_the_fit_rejects_a_broken_mechanism(wrong):
    assert max(p_values(adaptive_game(3, 2000, **wrong))) < 1e-3


def test_the_fit_leaves_out_trials_without_a_density():
    game = adaptive_game(4, 60)
    game["sensitivities"][0] = 0
    game["noise_std"][1] = 0
    game["log_odds"][1] = np.inf
    told = ~np.isnan(scores(**game, generator=rng_of(0)))
    assert told.tolist() == [False, False, *[True] * 58]
    nothing = fit(game["worlds"], np.full(60, np.nan))
    assert nothing == {"world_d": None, "world_d_prime": None}


def ratios_of(steps, trials=1, **norms):
    """Norms that are the same in every trial and step, under noise of deviation 1."""
    present, absent = norms["present"], norms.get("absent", 0.0)
    values = {
        "present_norms": present,
        "absent_norms": absent,
        "sensitivities": norms.get("apart", abs(present - absent)),
        "noise_std": 1.0,
    }
    return {name: np.full((trials, steps), value) for name, value in values.items()}


@pytest.mark.parametrize(("q", "z", "steps"), [(0.1, 1.0, 50), (0.02, 0.6, 100), (0.5, 3.0, 20)])
def test_simulated_sampled_steps_reach_the_total_variation_of_the_mechanism(q, z, steps):
    played = simulate(**ratios_of(steps, present=1 / z), sampling_rate=q, generator=rng_of(1))
    exact = PLD.delta(Mechanism.alike(z, steps, q), 0.0)
    assert abs(played.advantage - exact) < 4 * played.standard_error < 0.01
    assert played.deterministic


def test_simulated_replacement_by_the_opposite_reaches_its_total_variation():
    z = 1.5  # of the sensitivity 2C, which opposite gradients of norm C use up
    norms = ratios_of(20, present=0.5 / z, absent=0.5 / z, apart=1 / z)
    played = simulate(**norms, sampling_rate=0.3, generator=rng_of(3))
    exact = PLD.delta(Mechanism.alike(z, 20, 0.3, Neighbouring.REPLACE), 0.0)
    assert abs(played.advantage - exact) < 4 * played.standard_error < 0.01


@pytest.mark.parametrize(("present", "absent", "apart"), [(1.0, 0.0, 1.0), (0.7, 0.4, 0.5)])
def test_simulated_steps_without_sampling_follow_the_closed_form(present, absent, apart):
    norms = ratios_of(9, present=present, absent=absent, apart=apart)
    played = simulate(**norms, sampling_rate=1.0, generator=rng_of(4))
    predicted = predict(norms["sensitivities"], norms["noise_std"])
    assert abs(played.advantage - predicted.advantage) < 4 * played.standard_error < 0.02
    mu = 3 * apart
    for sample, sign in ((played.world_d, 1), (played.world_d_prime, -1)):
        assert stats.kstest(sample, stats.norm(sign * mu**2 / 2, mu).cdf).pvalue > 1e-4


@pytest.mark.parametrize("replaced", [False, True])
def test_simulated_log_odds_are_those_of_gradients_and_noise_in_many_dimensions(replaced):
    rng, q, steps, repeats, std = rng_of(5), 0.3, 4, 20_000, 1.3
    present, absent = rng.standard_normal((2, steps, 6)) / 2
    absent *= replaced
    norms = [np.linalg.norm(each, axis=-1)[None] for each in (present, absent, present - absent)]
    played = simulate(*norms, np.full((1, steps), std), q, rng_of(6))
    for sample, used in ((played.world_d, present), (played.world_d_prime, absent)):
        joined = rng.random((repeats, steps, 1)) < q
        released = joined * used + std * rng.standard_normal((repeats, steps, 6))
        density = [
            (1 - q) * np.exp(-(released**2).sum(-1) / (2 * std**2))
            + q * np.exp(-((released - mean) ** 2).sum(-1) / (2 * std**2))
            for mean in (present, absent)
        ]
        log_odds = np.log(density[0] / density[1]).sum(axis=1)
        assert stats.ks_2samp(log_odds, sample).pvalue > 1e-4


def test_a_simulation_repeats_with_its_generator_and_knows_trials_that_differ():
    norms = ratios_of(3, trials=2, present=1.0)
    once, again = (simulate(**norms, sampling_rate=0.5, generator=rng_of(7)) for _ in range(2))
    np.testing.assert_array_equal(once.world_d, again.world_d)
    norms["noise_std"][1] = 2.0
    assert not simulate(**norms, sampling_rate=0.5, generator=rng_of(7)).deterministic


def test_steps_without_a_gradient_say_nothing_even_without_noise():
    silent = np.zeros((2, 3))
    played = simulate(silent, silent, silent, silent, 0.5, rng_of(8))
    assert not played.world_d.any()
    assert not played.world_d_prime.any()
    assert (played.advantage, played.standard_error) == (0.0, 0.0)


def sampled_game(seed, trials, *, replaced, q=0.1, signal=1.0, scale=1.0):
    """Eight sampled steps of two-dimensional gradients that shrink where the adversary is surer.

    q: with which the record joins in truth; the log-odds assume 0.1. signal: how much longer its
    gradient is; scale: by how much too large the log-odds are.
    """
    rng, worlds, rate = np.random.default_rng(seed), balanced(trials), 0.1
    odds, kept = np.zeros(trials), {name: [] for name in ("log_odds", "g", "h", "apart")}
    for _ in range(8):
        length = np.where(odds > 0.1, rng.choice([0.0, 0.5], trials), 1.0)
        g = length[:, None] * [0.8, 0.6]
        h = replaced * length[:, None] * [-0.5, 0.5]
        joined = (rng.random(trials) < q)[:, None]
        noise = rng.standard_normal((trials, 2))
        released = signal * joined * np.where(worlds[:, None], g, h) + noise

        def mixture(direction, seen=released):
            return np.log1p(rate * np.expm1((seen * direction - direction**2 / 2).sum(1)))

        odds = odds + scale * (mixture(g) - mixture(h))
        for name, column in (("log_odds", odds), ("g", g), ("h", h), ("apart", g - h)):
            kept[name].append(column if name == "log_odds" else np.linalg.norm(column, axis=1))
    log_odds, present, absent, apart = (np.array(columns).T for columns in kept.values())
    return {
        "worlds": worlds,
        "log_odds": log_odds,
        "present_norms": 2 * present,
        "absent_norms": 2 * absent,
        "sensitivities": 2 * apart,
        "noise_std": np.full(log_odds.shape, 2.0),
    }


def sampled_p_values(game):
    standard = sampled_scores(**game, sampling_rate=0.1, generator=rng_of(1))
    return [each["p_value"] for each in fit(game["worlds"], standard).values() if each]


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("played", [9, 199])
def test_the_fit_of_sampled_steps_does_not_cry_wolf(replaced, played, monkeypatch):
    """However few steps are played beside each of a transcript."""
    monkeypatch.setattr(forecast, "MOST_PLAYED", played)
    games = (sampled_game(seed, 50, replaced=replaced) for seed in range(60))
    assert (
        stats.kstest(np.ravel([sampled_p_values(game) for game in games]), "uniform").pvalue > 1e-3
    )


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("wrong", [{"q": 0.2}, {"signal": 3.0}, {"scale": 1.3}])
def test_the_fit_of_sampled_steps_rejects_a_broken_mechanism(wrong, replaced):
    """In one world of the two at least: who is never there shows no wrong rate."""
    honest, broken = (
        sampled_game(5, 2000, replaced=replaced, **changes) for changes in ({}, wrong)
    )
    assert min(sampled_p_values(honest)) > 1e-3
    assert min(sampled_p_values(broken)) < 1e-4


def test_sampled_steps_that_the_record_never_joins_are_alike_up_to_rounding():
    """Against little noise each step without the record adds log(1 - q), rounded in a long sum."""
    rng, worlds, q = rng_of(6), balanced(600), 0.01
    loud = np.full((600, 40), 20.0)
    joined = (rng.random(loud.shape) < q) & worlds[:, None]
    exponent = loud**2 * (joined - 0.5) + loud * rng.standard_normal(loud.shape)
    log_odds = np.cumsum(np.logaddexp(np.log1p(-q), np.log(q) + exponent), axis=1)
    none, one = 0 * loud, np.ones_like(loud)
    standard = sampled_scores(worlds, log_odds, loud, none, loud, one, q, rng)
    assert min(found["p_value"] for found in fit(worlds, standard).values() if found) > 1e-3


# Bad input.

BITS, ODDS = np.array([True, False]), np.array([1.0, -1.0])
STEPS = np.ones((2, 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: trial_mu(STEPS, STEPS[:1]), "give both as \\[trials, steps\\]"),
        (lambda: trial_mu(STEPS, -STEPS), "negative or not a number"),
        (lambda: predict(STEPS * np.nan, STEPS), "negative or not a number"),
        (lambda: simulate(STEPS, STEPS, STEPS, STEPS, 0.0, rng_of(0)), "sampling rate is 0.0"),
        (lambda: simulate(STEPS, STEPS, STEPS, 0 * STEPS, 0.5, rng_of(0)), "has no noise"),
        (lambda: simulate(-STEPS, STEPS, STEPS, STEPS, 0.5, rng_of(0)), "negative"),
        (lambda: scores(BITS, STEPS, STEPS[:, :2], STEPS[:, :2], rng_of(0)), "log-odds are"),
        (lambda: scores(BITS, ODDS, STEPS, STEPS, rng_of(0)), "as \\[trials, steps\\]"),
    ],
)
def test_impossible_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
