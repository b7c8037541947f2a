"""Forecasts agree with closed forms and with the mechanisms that they speak of."""

from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest
from games import Bools, Floats, balanced, rng_of
from scipy import stats

from adversaries.forecast import log_odds_fit, predict, simulate, simulated_fit, trial_mu
from fedsim.accounting import PLD
from fedsim.errors import InputError
from fedsim.mechanism import Mechanism, Neighbouring

PHI = NormalDist().cdf


# Predictions.


@pytest.mark.parametrize(
    ("mu", "expected"),
    [(0.6535891631872568, 0.2561767), (0.3426508180245408, 0.13603209767419933)],
)
def test_under_noise_scaled_to_the_sensitivity_only_the_multiplier_counts(
    mu: float, expected: float
) -> None:
    sensitivities = np.random.default_rng(0).uniform(0.01, 3, (20, 30))
    predicted = predict(sensitivities, np.sqrt(30) / mu * sensitivities)
    assert predicted.mu == pytest.approx(mu, rel=1e-12)
    assert predicted.advantage == pytest.approx(expected, abs=1e-7)
    assert predicted.deterministic


def test_a_prediction_from_random_sensitivities_averages_trials_and_says_so() -> None:
    predicted = predict(np.array([[3.0, 4.0], [0.0, 0.0]]), np.full((2, 2), 5.0))
    np.testing.assert_allclose(predicted.trial_mu, [1.0, 0.0])
    assert predicted.mu == pytest.approx(np.sqrt(0.5))
    assert predicted.advantage == pytest.approx((2 * PHI(0.5) - 1) / 2)
    assert not predicted.deterministic


def test_trials_are_alike_up_to_the_rounding_of_float32_gradients() -> None:
    alike, unlike = (np.array([[1.0], [1 + gap]]) for gap in (1e-7, 1e-5))
    assert predict(alike, np.ones((2, 1))).deterministic
    assert not predict(unlike, np.ones((2, 1))).deterministic


def fit_game(trials: int = 2000) -> tuple[Bools, Floats, Floats]:
    rng = np.random.default_rng(9)
    worlds, mu = balanced(trials), rng.uniform(0.2, 2, trials)
    log_odds = np.where(worlds, 0.5, -0.5) * mu**2 + mu * rng.standard_normal(trials)
    return worlds, log_odds, mu


@pytest.mark.parametrize("prior", [0.5, 0.9])
def test_log_odds_fit_accepts_what_theory_predicts(prior: float) -> None:
    worlds, log_odds, mu = fit_game()
    fit = log_odds_fit(worlds, log_odds + np.log(prior / (1 - prior)), mu, prior)
    for world, sign, of_world in ((worlds, 1, "world_d"), (~worlds, -1, "world_d_prime")):
        found = fit[of_world]
        standardised = (log_odds - sign * mu**2 / 2)[world] / mu[world]
        assert found is not None
        assert found["statistic"] == pytest.approx(stats.kstest(standardised, "norm").statistic)
        assert found["p_value"] > 0.01
        assert found["trials"] == 1000


@pytest.mark.parametrize("wrong", ["scale", "shift", "world", "prior"])
def test_log_odds_fit_rejects_a_broken_mechanism(wrong: str) -> None:
    worlds, log_odds, mu = fit_game()
    broken = {
        "scale": (worlds, 1.3 * log_odds, mu, 0.5),
        "shift": (worlds, log_odds + 0.5, mu, 0.5),
        "world": (~worlds, log_odds, mu, 0.5),
        "prior": (worlds, log_odds, mu, 0.7),
    }
    for found in log_odds_fit(*broken[wrong]).values():
        assert found is not None
        assert found["p_value"] < 1e-3


def test_log_odds_fit_leaves_out_trials_without_a_density() -> None:
    worlds, log_odds, mu = fit_game(200)
    mu[:20], mu[20:40], mu[~worlds] = 0.0, np.inf, 0.0
    fit = log_odds_fit(worlds, log_odds, mu)
    assert fit["world_d_prime"] is None
    assert fit["world_d"] == log_odds_fit(worlds[40:], log_odds[40:], mu[40:])["world_d"]


# Sampled steps.


def ratios_of(steps: int, trials: int = 1, **norms: float) -> dict[str, Floats]:
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
def test_simulated_sampled_steps_reach_the_total_variation_of_the_mechanism(
    q: float, z: float, steps: int
) -> None:
    played = simulate(**ratios_of(steps, present=1 / z), sampling_rate=q, generator=rng_of(1))
    exact = PLD.delta(Mechanism.alike(z, steps, q), 0.0)
    assert abs(played.advantage - exact) < 4 * played.standard_error < 0.01
    assert played.deterministic


def test_the_example_of_the_design_is_won_with_an_advantage_of_about_a_third() -> None:
    played = simulate(**ratios_of(50, present=1.0), sampling_rate=0.1, generator=rng_of(2))
    assert played.advantage == pytest.approx(0.32, abs=0.006)


def test_simulated_replacement_by_the_opposite_reaches_its_total_variation() -> None:
    z = 1.5  # of the sensitivity 2C, which opposite gradients of norm C use up
    norms = ratios_of(20, present=0.5 / z, absent=0.5 / z, apart=1 / z)
    played = simulate(**norms, sampling_rate=0.3, generator=rng_of(3))
    exact = PLD.delta(Mechanism.alike(z, 20, 0.3, Neighbouring.REPLACE), 0.0)
    assert abs(played.advantage - exact) < 4 * played.standard_error < 0.01


@pytest.mark.parametrize(("present", "absent", "apart"), [(1.0, 0.0, 1.0), (0.7, 0.4, 0.5)])
@pytest.mark.parametrize("prior", [0.5, 0.8])
def test_simulated_steps_without_sampling_follow_the_closed_form(
    present: float, absent: float, apart: float, prior: float
) -> None:
    norms = ratios_of(9, present=present, absent=absent, apart=apart)
    played = simulate(**norms, sampling_rate=1.0, generator=rng_of(4), prior=prior)
    predicted = predict(norms["sensitivities"], norms["noise_std"], prior)
    assert abs(played.advantage - predicted.advantage) < 4 * played.standard_error < 0.02
    mu = 3 * apart
    for sample, sign in ((played.world_d, 1), (played.world_d_prime, -1)):
        assert stats.kstest(sample, stats.norm(sign * mu**2 / 2, mu).cdf).pvalue > 1e-4


@pytest.mark.parametrize("replaced", [False, True])
def test_simulated_log_odds_are_those_of_gradients_and_noise_in_many_dimensions(
    replaced: bool,
) -> None:
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


def test_a_simulation_repeats_with_its_generator_and_knows_trials_that_differ() -> None:
    norms = ratios_of(3, trials=2, present=1.0)
    once, again = (simulate(**norms, sampling_rate=0.5, generator=rng_of(7)) for _ in range(2))
    np.testing.assert_array_equal(once.world_d, again.world_d)
    norms["noise_std"][1] = 2.0
    assert not simulate(**norms, sampling_rate=0.5, generator=rng_of(7)).deterministic


def test_steps_without_a_gradient_say_nothing_even_without_noise() -> None:
    silent = np.zeros((2, 3))
    played = simulate(silent, silent, silent, silent, 0.5, rng_of(8))
    assert not played.world_d.any()
    assert not played.world_d_prime.any()
    assert (played.advantage, played.standard_error) == (0.0, 0.0)


def test_the_simulated_fit_does_not_cry_wolf() -> None:
    """Over games that follow their own simulation, p-values are uniform."""
    norms, rng = ratios_of(10, present=1.0), rng_of(9)
    worlds = np.arange(200) < 100
    p_values = []
    for _ in range(200):
        truth = simulate(**norms, sampling_rate=0.1, generator=rng, games=100)
        theory = simulate(**norms, sampling_rate=0.1, generator=rng, games=20_000)
        fit = simulated_fit(worlds, np.concatenate([truth.world_d, truth.world_d_prime]), theory)
        p_values.append([found["p_value"] for found in fit.values() if found])
    for world in np.transpose(p_values):
        assert stats.kstest(world, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("wrong", ["signal", "sampling rate", "world", "prior", "unmixed"])
def test_the_simulated_fit_rejects_a_broken_mechanism(wrong: str) -> None:
    games = 4000

    def played(present: float = 1.0, q: float = 0.1) -> Floats:
        norms = ratios_of(30, present=present)
        game = simulate(**norms, sampling_rate=q, generator=rng_of(10), games=games)
        return np.concatenate([game.world_d, game.world_d_prime])

    broken = {
        "signal": lambda: played(present=1.3),
        "sampling rate": lambda: played(q=0.15),
        "world": lambda: np.roll(played(), games),
        "prior": lambda: played() + 0.3,
        "unmixed": lambda: 3 * played(),
    }
    worlds = np.arange(2 * games) < games
    theory = simulate(**ratios_of(30, present=1.0), sampling_rate=0.1, generator=rng_of(11))
    for log_odds, accepted in ((played(), True), (broken[wrong](), False)):
        for found in simulated_fit(worlds, log_odds, theory).values():
            assert found is not None
            assert (found["p_value"] > 1e-4) is accepted


def test_a_world_without_trials_has_no_simulated_fit() -> None:
    theory = simulate(**ratios_of(2, present=1.0), sampling_rate=0.5, generator=rng_of(12))
    assert simulated_fit(np.ones(5, bool), np.zeros(5), theory)["world_d_prime"] is None


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
        (lambda: simulate(STEPS, STEPS, STEPS, 0 * STEPS, 0.5, rng_of(0)), "meets no noise"),
        (lambda: simulate(-STEPS, STEPS, STEPS, STEPS, 0.5, rng_of(0)), "negative"),
        (lambda: log_odds_fit(BITS, ODDS, np.ones(3)), "mu is \\(3,\\)"),
        (lambda: log_odds_fit(BITS, ODDS, 1.0, 1.0), "prior is 1.0"),
    ],
)
def test_impossible_input_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
