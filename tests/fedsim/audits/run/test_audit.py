"""The report says what the transcript holds, and raises an alarm when theory is exceeded."""

import json

import numpy as np
import pytest
from scipy.stats import kstest

from adversaries.errors import InputError
from fedsim.audits.run import audit
from fedsim.audits.run.audited_run import AuditedRun
from fedsim.audits.run.report import accounted, decode
from fedsim.game.mechanisms import privacy
from fedsim.privacy.accounting import PLD
from fedsim.privacy.trust import Vantage
from tests.findings import doubts, raised

from .games import ROUNDS, TRIALS
from .games import gaussian_game as _game


def _sampled_game(config, strength=1.0, seed=0):
    """Play the game of sampled steps: unit gradients, opposite ones under replace."""
    facts, transcript = _game(config, seed=seed)
    generator = np.random.default_rng(seed + 1000)
    worlds, q = transcript["worlds"], config.training.sampling_rate
    replaced = config.privacy.neighbouring == "replace"
    claimed = 1 / transcript["noise_stds"] / (2 if replaced else 1)
    joined = generator.random(claimed.shape) < q
    mean = np.where(worlds, 1.0, -1.0 if replaced else 0.0)[:, None] * joined * strength * claimed
    released = mean + generator.standard_normal(claimed.shape)
    mixed = np.log1p(-q + q * np.exp(released * claimed - claimed**2 / 2))
    if replaced:
        mixed -= np.log1p(-q + q * np.exp(-released * claimed - claimed**2 / 2))
    noise = 1 / claimed
    ones = np.ones_like(claimed)
    changed = {
        "log_odds": np.cumsum(mixed, axis=1),
        "present_norms": ones,
        "absent_norms": ones * replaced,
        "sensitivities": ones * (2 if replaced else 1),
        "noise_stds": noise,
    }
    return facts, transcript | changed


def _report(config, strength=1.0):
    return _of(config, *_game(config, strength), config.privacy.delta)


def _of(config, facts, transcript, delta=0.01):
    return audit.assemble(AuditedRun(config, facts, transcript, 0.95, delta))


@pytest.fixture
def config(small):
    return small(
        {"training.rounds": ROUNDS, "trials.count": TRIALS, "privacy.delta": 0.01}
        | {"privacy.accountant": "rdp-classic"}
    )


def test_the_papers_setting_gives_the_papers_numbers(config):
    report = _report(config)
    assert report.details.mechanism.noise_multiplier == pytest.approx(8.38022703488798, rel=1e-6)
    assert accounted(report).epsilon == pytest.approx(np.log(9), rel=1e-6)
    assert accounted(report).rho_beta == pytest.approx(0.9, rel=1e-6)
    assert report.row.limit.rho_alpha == pytest.approx(0.2561767421042713, rel=1e-6)
    assert report.details.bounds.tail_probability == pytest.approx(0.0012027268180968128, rel=1e-5)
    assert report.row.limit.epsilon == pytest.approx(1.3134725502396565, rel=1e-6)
    assert report.details.prediction.mu == pytest.approx(0.6535891631872568, rel=1e-6)
    assert report.details.prediction.deterministic
    # With noise scaled to what the sensitivities are, this estimator is a tautology.
    assert report.details.empirical.epsilon.sensitivity == pytest.approx(np.log(9), rel=1e-6)


def test_an_honest_mechanism_raises_no_alarm(config):
    report = _report(config)
    low, high = report.attack.interval
    assert low < report.row.limit.rho_alpha < high
    assert report.alarms == 0


def test_a_mechanism_with_half_the_noise_is_convicted(config):
    report = _report(config, strength=2.0)
    assert {"advantage", "delta_prime", "gaussian", "world_d"} <= set(raised(report))


def test_more_than_is_accounted_for_is_an_alarm_that_needs_no_statistics(config):
    facts, transcript = _game(config)
    transcript["noise_stds"] = transcript["noise_stds"] / 1.01
    alarms = raised(_of(config, facts, transcript))
    assert list(alarms) == ["composition"]
    assert "Not all rounds were composed" in alarms["composition"]


@pytest.mark.slow
def test_alarms_are_rare_where_all_is_well(config):
    """Noise scaled to what the challenge uses leaves no slack, so chance alone decides."""
    raised = 0
    for seed in range(40):
        facts, transcript = _game(config, seed=seed)
        raised += bool(_of(config, facts, transcript).alarms)
    # A dozen alarms at 0.0001 each: one in forty reports happens one time in twenty at most.
    assert raised == 0


def test_the_guarantee_is_claimed_only_for_secret_noise_scaled_to_global_sensitivity(small):
    def claimed(**changes):
        keys = {f"privacy.{name.replace('_', '-')}": value for name, value in changes.items()}
        config = small({"training.rounds": ROUNDS, "trials.count": TRIALS} | keys)
        mechanism = _report(config).details.mechanism
        return mechanism.dp_guarantee, mechanism.dp_note

    assert claimed(noise_source="system")[0]
    guaranteed, note = claimed(noise_source="system", sensitivity="local")
    assert not guaranteed
    assert "not a DP guarantee" in note
    guaranteed, note = claimed(noise_source="seed")
    assert not guaranteed
    assert "who knows the seed can remove the noise" in note


def test_a_target_under_local_trust_is_met_by_the_noise_of_the_others(small):
    keys = {"training.rounds": ROUNDS, "trials.count": TRIALS, "federation.clients": 5}
    central, local = small(keys), small(keys | {"federation.trust": "local"})
    assert privacy.noise_multiplier(central) == pytest.approx(
        2 * privacy.noise_multiplier(local), rel=1e-9
    )
    assert accounted(_report(local)).rho_beta == pytest.approx(0.9, rel=1e-6)


def test_a_single_training_has_no_advantage_and_no_power_of_its_check(small):
    config = small({"training.rounds": ROUNDS, "trials.count": 1, "audit.attacks": "none"})
    report = _of(config, *_game(config, trials=1))
    assert report.row.standing == "not-measured"
    assert report.attack.advantage is report.attack.interval is report.attack.delta_prime is None
    assert report.attack.belief >= 0.5
    assert report.details.empirical.epsilon.advantage is None
    text = json.dumps(report.report, allow_nan=False)
    assert decode(json.loads(text)) == report
    # The checks of the advantage and of the two worlds' distance were not made.
    assert report.row.detects == 0
    assert report.alarms == 0


@pytest.fixture
def sampled(small):
    return small(
        {"training.rounds": ROUNDS, "trials.count": TRIALS, "privacy.delta": 0.01}
        | {"training.sampling-rate": 0.1}
        | {"privacy.rho-beta": 0.0, "privacy.noise-multiplier": 0.8}
    )


@pytest.mark.slow
def test_sampled_steps_are_predicted_to_reach_their_bound(sampled):
    report = _of(sampled, *_sampled_game(sampled))
    json.dumps(report.report, allow_nan=False)
    prediction, limit = report.details.prediction, report.row.limit
    assert report.alarms == 0
    assert (prediction.method, prediction.deterministic) == ("simulation", True)
    assert prediction.mu == pytest.approx(
        np.sqrt(ROUNDS) / report.details.mechanism.effective_noise_multiplier
    )
    off = abs(prediction.advantage - limit.rho_alpha)
    assert off < 4 * prediction.standard_error < 0.01
    off = abs(prediction.advantage - report.attack.advantage)
    assert off < 4 * report.attack.standard_error
    assert report.details.mechanism.sampling_rate == 0.1

    epsilon = report.details.empirical.epsilon
    # Every gradient uses up the sensitivity, so that theory's own epsilon comes back.
    assert epsilon.sensitivity_exact == pytest.approx(report.row.limit.epsilon)
    assert epsilon.sensitivity > epsilon.sensitivity_exact
    gaussian = report.details.empirical.lower_bounds["gaussian"]
    assert gaussian.epsilon == 0
    assert gaussian.reason == "log-odds are not normal under sampling"


@pytest.mark.slow
def test_sampled_steps_with_less_noise_than_claimed_are_convicted(sampled):
    facts, transcript = _sampled_game(sampled, strength=2.0)
    alarms = raised(_of(sampled, facts, transcript))
    assert {"advantage", "world_d"} <= set(alarms)
    assert "gaussian" not in alarms
    assert "do not follow sampled steps" in alarms["world_d"]


@pytest.mark.slow
@pytest.mark.long
def test_alarms_are_rare_under_sampling_where_all_is_well(sampled):
    p_values, raised = [], 0
    for seed in range(40):
        report = _of(sampled, *_sampled_game(sampled, seed=seed))
        raised += bool(report.alarms)
        fit = report.details.prediction.fit
        p_values += [each.p_value for each in (fit.world_d, fit.world_d_prime) if each]
    assert raised <= 1
    assert kstest(p_values, "uniform").pvalue > 1e-4


@pytest.mark.slow
def test_sampled_replacement_has_no_epsilon_from_one_distance(small):
    config = small(
        {"training.rounds": ROUNDS, "trials.count": TRIALS, "training.sampling-rate": 0.1}
        | {"privacy.neighbouring": "replace"}
    )
    facts, transcript = _sampled_game(config)
    report = _of(config, facts, transcript, 0.005)
    assert report.details.empirical.epsilon.sensitivity is None
    assert report.details.empirical.epsilon.sensitivity_exact is None
    assert report.alarms == 0
    mechanism = privacy.mechanism(config, facts["noise_multiplier"])
    off = abs(report.details.prediction.advantage - PLD.delta(mechanism, 0.0))
    assert off < 4 * report.details.prediction.standard_error


def test_sampled_steps_cannot_be_predicted_without_the_norms(sampled):
    facts, transcript = _game(sampled)
    with pytest.raises(InputError, match="no array 'present_norms'"):
        _of(sampled, facts, transcript)


@pytest.fixture
def stepping(small):
    return small(
        {"training.rounds": ROUNDS, "trials.count": TRIALS, "training.local-steps": 4}
        | {"federation.trust": "local", "federation.clients": 3}
    )


def test_local_steps_are_bounded_by_all_of_them_under_the_clients_own_noise(stepping):
    report = _report(stepping)
    mechanism = report.details.mechanism
    assert (mechanism.steps, mechanism.local_steps) == (4 * ROUNDS, 4)
    assert mechanism.effective_noise_multiplier == mechanism.noise_multiplier
    assert report.details.empirical.sensitivity_bound is None
    assert accounted(report).rho_beta == pytest.approx(0.9, rel=1e-6)
    assert {row.limit.epsilon for row in report.rows.values()} == {accounted(report).epsilon}


def test_the_score_of_a_linearised_attack_raises_no_alarm_by_its_scale(stepping):
    facts, transcript = _game(stepping)
    transcript["log_odds"] = 50 * transcript["log_odds"]
    report = _of(stepping, facts, transcript, 0.005)
    assert report.attack.delta_prime > report.details.bounds.tail_probability
    assert report.alarms == 0
    assert "linearised" in report.details.empirical.lower_bounds["gaussian"].reason
    assert any("not an exact posterior" in line for line in doubts(report))


def test_decisions_that_are_right_too_often_convict_local_steps_too(stepping):
    alarms = raised(_report(stepping, strength=8.0))
    assert {"advantage", "clopper_pearson"} <= set(alarms)
    assert not {"delta_prime", "gaussian", "world_d", "world_d_prime"} & set(alarms)


def test_an_oracle_audit_guarantees_nothing(small):
    config = small(
        {"training.rounds": ROUNDS, "trials.count": TRIALS, "privacy.noise-source": "system"}
        | {"audit.mode": "oracle"}
    )
    mechanism = _report(config).details.mechanism
    assert not mechanism.dp_guarantee
    assert "gave their noise" in mechanism.dp_note


def _everywhere(config, strength=1.0):
    """Play the game at all vantages; `strength` multiplies the signal that the server gets."""
    facts, transcript = _game(config)
    _, server = _game(config, strength, seed=1)
    _, released = _game(config, 0.9, seed=2)
    for other, arrays in (("server", server), ("released_model", released)):
        for name in ("log_odds", "sensitivities", "noise_stds"):
            transcript[f"{name}_{other}"] = arrays[name]
    signs = np.where(transcript["worlds"], 1, -1)[:, None]
    if config.federation.trust == "central":
        transcript["log_odds_server"] = np.full((TRIALS, ROUNDS), np.inf) * signs
        transcript["noise_stds_server"] = np.zeros((TRIALS, ROUNDS))
    return facts, transcript


@pytest.fixture
def everywhere(small):
    return small(
        {"training.rounds": ROUNDS, "trials.count": TRIALS, "privacy.delta": 0.01}
        | {"audit.vantages": "all", "privacy.rho-beta": 0.0, "privacy.noise-multiplier": 5.0}
    )


def test_every_vantage_stands_beside_its_own_bound(everywhere):
    report = _of(everywhere, *_everywhere(everywhere))
    rows = report.rows
    assert list(rows) == ["server", "participant", "released-model"]
    # 5 is the noise of every round against one record; nothing hides it from the server.
    assert [row.limit.noise_multiplier for row in rows.values()] == [0, 5, 5]
    for row in rows.values():
        assert row.attack.interval[0] <= row.limit.rho_alpha
    assert rows["participant"].attack == report.attack
    assert rows["participant"].predicted.advantage == report.details.prediction.advantage
    assert rows["participant"].attack.near_prediction
    assert rows["participant"].attack.best
    assert rows["released-model"].predicted.method == "linearised"
    assert not rows["released-model"].attack.best
    assert "not an exact posterior" in rows["released-model"].note
    assert report.alarms == 0


def test_a_vantage_above_its_bound_raises_an_alarm_of_its_own(small):
    config = small(
        {"training.rounds": ROUNDS, "trials.count": TRIALS, "privacy.delta": 0.01}
        | {"audit.vantages": "all", "privacy.rho-beta": 0.0, "privacy.noise-multiplier": 20.0}
        | {"federation.trust": "local", "federation.clients": 3}
    )
    facts, transcript = _everywhere(config, strength=2.5)
    # The game was played against the noise towards a participant; the server has less before it.
    report = _of(config, facts, transcript)
    assert set(raised(report)) == {"advantage_server"}
    assert "the vantage server" in raised(report)["advantage_server"]
    assert report.rows["server"].standing == "contradicted"
    assert not report.rows["server"].attack.near_prediction


@pytest.mark.parametrize("neighbouring", ["add-remove", "replace"])
def test_who_sees_sampled_sums_without_noise_must_wait_for_the_record(neighbouring, small):
    q, rounds = 0.01, 30
    config = small(
        {"training.rounds": rounds, "trials.count": TRIALS, "training.sampling-rate": q}
        | {"privacy.rho-beta": 0.0, "privacy.noise-multiplier": 5.0}
        | {"federation.vantage": "server", "privacy.neighbouring": neighbouring}
    )
    facts, transcript = _game(config.model_copy(update={"federation": small().federation}))
    worlds = transcript["worlds"][:, None]
    joined = np.random.default_rng(3).random((TRIALS, rounds)) < q
    if neighbouring == "replace":
        ratios = np.where(joined, np.where(worlds, np.inf, -np.inf), 0.0)
    else:
        ratios = np.where(joined & worlds, np.inf, np.log(1 - q))
    ones = np.ones((TRIALS, rounds))
    transcript |= {"log_odds": np.cumsum(ratios, axis=1), "noise_stds": 0 * ones}
    report = _of(config, facts, transcript)
    assert report.details.prediction.advantage == pytest.approx(1 - (1 - q) ** rounds)
    assert report.rows["server"].attack.near_prediction
    assert report.alarms == 0


def test_the_released_models_log_odds_raise_no_alarm(everywhere):
    """Its log-odds are a score: however large, they contradict nothing."""
    place = everywhere.federation.model_copy(update={"vantage": Vantage.RELEASED_MODEL})
    config = everywhere.model_copy(update={"federation": place})
    facts, transcript = _game(config)
    transcript["log_odds"] = 5 * transcript["log_odds"]
    report = _of(config, facts, transcript)
    assert report.alarms == 0
    assert report.details.empirical.lower_bounds["gaussian"].epsilon == 0
    assert any("only the released model" in warning for warning in doubts(report))
