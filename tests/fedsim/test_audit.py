"""The report says what the transcript holds, and raises an alarm when theory is exceeded."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsim import audit, privacy
from fedsim.config import Config
from fedsim.run_directory import Arrays

TRIALS, ROUNDS = 2000, 30
Make = Callable[..., Config]


def _game(config: Config, strength: float = 1.0, seed: int = 0) -> tuple[dict[str, Any], Arrays]:
    """Play the Gaussian game that a configuration describes; `strength` multiplies the signal."""
    generator = np.random.default_rng(seed)
    nominal = privacy.noise_multiplier(config)
    effective = privacy.mechanism(config, nominal).noise_multiplier
    worlds = np.arange(TRIALS) % 2 == 0
    if config.trials.worlds == "d-only":
        worlds[:] = True
    step = strength / effective
    signs = np.where(worlds, 1, -1)[:, None]
    ratios = signs * step**2 / 2 + step * generator.standard_normal((TRIALS, ROUNDS))
    transcript = {
        "worlds": worlds,
        "log_odds": np.cumsum(ratios, axis=1),
        "sensitivities": np.ones((TRIALS, ROUNDS)),
        "noise_stds": np.full((TRIALS, ROUNDS), effective),
        "true_positive_rate": generator.uniform(0.5, 0.7, TRIALS),
        "false_positive_rate": generator.uniform(0.5, 0.7, TRIALS),
        "challenge_is_member": generator.random(TRIALS) < 0.5,
        "losses": np.linspace(2, 1, ROUNDS + 1)[:, None] + np.zeros((1, 3)),
        "accuracies": np.linspace(0.1, 0.8, ROUNDS + 1)[:, None] + np.zeros((1, 3)),
    }
    facts = {
        "created": "2026-01-01T00:00:00+00:00",
        "runtime": "in process",
        "device": "cpu",
        "versions": {"fedsim": "0"},
        "challenge": {
            "record": 0,
            "replacement": None,
            "owner": 0,
            "adversary": 1,
            "measure": "given",
            "distance": None,
        },
        "owner_sizes": [12, 12],
        "dataset": "digits",
        "held_out": 20,
        "parameters": 650,
        "noise_multiplier": nominal,
        "timing": {"federation": 1.0, "owners_computing": 1.0, "total": 1.0},
    }
    return facts, transcript


def _report(config: Config, strength: float = 1.0, confidence: float = 0.95) -> dict[str, Any]:
    facts, transcript = _game(config, strength)
    return audit.assemble(config, facts, transcript, confidence, config.privacy.delta)


@pytest.fixture
def config(small: Make) -> Config:
    return small(
        {"training.rounds": ROUNDS, "trials.count": TRIALS, "privacy.delta": 0.01}
        | {"privacy.accountant": "rdp-classic"}
    )


def test_the_papers_setting_gives_the_papers_numbers(config: Config) -> None:
    report = _report(config)
    assert report["mechanism"]["noise_multiplier"] == pytest.approx(8.38022703488798, rel=1e-6)
    assert report["bounds"]["epsilon"] == pytest.approx(np.log(9), rel=1e-6)
    assert report["bounds"]["rho_beta"] == pytest.approx(0.9, rel=1e-6)
    assert report["bounds"]["rho_alpha"] == pytest.approx(0.2561767421042713, rel=1e-6)
    assert report["bounds"]["tail_probability"] == pytest.approx(0.0012027268180968128, rel=1e-5)
    assert report["bounds"]["tight_epsilon"] == pytest.approx(1.3134725502396565, rel=1e-6)
    assert report["prediction"]["mu"] == pytest.approx(0.6535891631872568, rel=1e-6)
    assert report["prediction"]["deterministic"]
    # With noise scaled to what the sensitivities are, this estimator is a tautology.
    assert report["empirical"]["epsilon"]["sensitivity"] == pytest.approx(np.log(9), rel=1e-6)


def test_an_honest_mechanism_raises_no_alarm(config: Config) -> None:
    report = _report(config)
    low, high = report["empirical"]["advantage_interval"]
    assert low < report["bounds"]["rho_alpha"] < high
    assert report["alarms"] == {}


def test_a_mechanism_with_half_the_noise_is_convicted(config: Config) -> None:
    report = _report(config, strength=2.0)
    assert {"advantage", "delta_prime", "gaussian", "world_d"} <= set(report["alarms"])
    assert set(report["alarms"].values()) <= set(report["warnings"])


def test_alarms_are_rare_where_all_is_well(config: Config) -> None:
    """Noise scaled to what the challenge uses leaves no slack, so chance alone decides."""
    raised = 0
    for seed in range(40):
        facts, transcript = _game(config, seed=seed)
        raised += bool(audit.assemble(config, facts, transcript, 0.95, 0.01)["alarms"])
    # Seven looks at 0.001 each: one in forty reports is already unlucky.
    assert raised <= 1


@pytest.mark.parametrize("prior", [0.3, 0.9])
def test_another_prior_moves_the_decision_and_not_the_bounds(prior: float, small: Make) -> None:
    keys = {"training.rounds": ROUNDS, "trials.count": TRIALS, "privacy.delta": 0.01}
    even, other = small(keys), small(keys | {"audit.prior": prior})
    facts, transcript = _game(even)
    shifted = transcript | {"log_odds": transcript["log_odds"] + np.log(prior / (1 - prior))}
    expected = audit.assemble(even, facts, transcript, 0.95, 0.01)
    report = audit.assemble(other, facts, shifted, 0.95, 0.01)
    assert report["alarms"] == {}
    assert report["bounds"] == expected["bounds"]
    assert report["empirical"]["delta_prime"] == expected["empirical"]["delta_prime"]
    assert report["empirical"]["epsilon"]["belief"] == pytest.approx(
        expected["empirical"]["epsilon"]["belief"]
    )
    off = abs(report["empirical"]["advantage"] - report["prediction"]["advantage"])
    assert off < 4 * report["empirical"]["standard_error"]
    assert report["prediction"]["advantage"] < expected["prediction"]["advantage"]


def test_the_guarantee_is_claimed_only_for_secret_noise_scaled_to_global_sensitivity(
    small: Make,
) -> None:
    def claimed(**changes: str) -> tuple[bool, str]:
        keys = {f"privacy.{name.replace('_', '-')}": value for name, value in changes.items()}
        config = small({"training.rounds": ROUNDS, "trials.count": TRIALS} | keys)
        mechanism = _report(config)["mechanism"]
        return mechanism["dp_guarantee"], mechanism["dp_note"]

    assert claimed(noise_source="system")[0]
    guaranteed, note = claimed(noise_source="system", sensitivity="local")
    assert not guaranteed
    assert "not a DP guarantee" in note
    guaranteed, note = claimed(noise_source="seed")
    assert not guaranteed
    assert "whoever knows the seed can remove it" in note


def test_the_server_under_central_trust_is_unprotected(config: Config) -> None:
    report = _report(config)
    rows = {row["vantage"]: row for row in report["bounds"]["vantages"]}
    assert rows["server"]["epsilon"] is None
    assert rows["server"]["rho_alpha"] == 1.0
    assert rows["participant"]["epsilon"] == pytest.approx(report["bounds"]["tight_epsilon"])


def test_a_target_under_local_trust_is_met_by_the_noise_of_the_others(small: Make) -> None:
    keys = {"training.rounds": ROUNDS, "trials.count": TRIALS, "federation.owners": 5}
    central, local = small(keys), small(keys | {"federation.trust": "local"})
    assert privacy.noise_multiplier(central) == pytest.approx(
        2 * privacy.noise_multiplier(local), rel=1e-9
    )
    assert _report(local)["bounds"]["rho_beta"] == pytest.approx(0.9, rel=1e-6)


def test_the_papers_one_sided_campaign_is_reported_without_bounds_it_cannot_give(
    small: Make,
) -> None:
    config = small({"training.rounds": ROUNDS, "trials.count": TRIALS, "trials.worlds": "d-only"})
    facts, transcript = _game(config)
    report = audit.assemble(config, facts, transcript, 0.95, 0.01)
    json.dumps(report, allow_nan=False)
    assert report["empirical"]["advantage_interval"] is None
    assert report["alarms"] == {}
    assert any("need both worlds" in line for line in report["warnings"])


def test_every_number_is_strict_json(config: Config) -> None:
    facts, transcript = _game(config)
    # An adversary that never errs: the estimator from the advantage is infinite.
    transcript["log_odds"] = np.where(transcript["worlds"], 1e3, -1e3)[:, None] * np.ones(ROUNDS)
    report = audit.assemble(config, facts, transcript, 0.95, 0.01)
    json.dumps(report, allow_nan=False)
    assert report["empirical"]["epsilon"]["advantage"] is None
