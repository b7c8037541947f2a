"""What a client charges its records and what it refuses, seen by messages and by its own report."""

import json
import shutil

import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant

from .corpus import fedsim
from .golden import inputs


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return the folder of a client's machine after a first training of 4 rounds at epsilon 2."""
    monkeypatch.chdir(tmp_path)
    inputs.deployment()
    return tmp_path / "machine"


def _report(machine):
    ended = fedsim(("deploy", "report", str(machine), "--json"), machine.parent)
    assert ended.status == 0, ended.errors
    return json.loads(ended.output)


def _rows(machine):
    texts = (machine / "state" / "ledger.jsonl").read_text().splitlines()
    return [json.loads(text) for text in texts]


def _epsilon(noises, delta):
    """Return dp-accounting's epsilon of full batches whose noise has these multipliers."""
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    for noise in noises:
        accountant.compose(dp_event.GaussianDpEvent(noise))
    return float(accountant.get_epsilon(delta))


def test_the_budget_is_what_dp_accounting_says_of_the_noise_of_all_answers(machine):
    first = _report(machine)
    (run,) = first["runs"]
    assert first["budget"]["answers"] == 4
    assert first["budget"]["epsilon"] == pytest.approx(2.0, rel=1e-6)
    noises = [run["noise_multiplier"]] * 4
    assert first["budget"]["epsilon"] == pytest.approx(_epsilon(noises, 1e-3), rel=2e-3)

    inputs.deployed_training({"run.out": "second", "training.rounds": 2}, {"epsilon-limit": 9.0}, 2)
    both = _report(machine)
    noises += [both["runs"][1]["noise_multiplier"]] * 2
    assert both["budget"]["answers"] == 6
    assert both["budget"]["epsilon"] == pytest.approx(_epsilon(noises, 1e-3), rel=2e-3)
    assert both["budget"]["epsilon"] > first["budget"]["epsilon"]


def test_a_run_may_reach_the_limit_and_not_pass_it(machine):
    before = _rows(machine)
    shutil.copytree(machine, machine.with_name("before"))
    inputs.deployed_training({"run.out": "second"}, {"epsilon-limit": 9.0}, 2)
    exact = _report(machine)["budget"]["epsilon"]
    shutil.rmtree(machine)
    machine.with_name("before").rename(machine)
    with pytest.raises(RuntimeError, match="epsilon"):
        inputs.deployed_training({"run.out": "third"}, {"epsilon-limit": exact * (1 - 1e-6)}, 3)
    assert _rows(machine) == before
    inputs.deployed_training({"run.out": "fourth"}, {"epsilon-limit": exact}, 4)
    assert len(_rows(machine)) == 2 * len(before)
    assert _report(machine)["budget"]["epsilon"] == pytest.approx(exact, rel=1e-9)


OTHER_SCHEMA = """
label = "sick"
classes = ["no", "yes"]
columns = { age = [0, 120], dose = [0, 5] }
"""

REFUSED = {
    "seed": ({"privacy.noise-source": "seed"}, {}),
    "central": ({"federation.trust": "central", "federation.vantage": "participant"}, {}),
    "schema": ({"data.public-schema": OTHER_SCHEMA}, {}),
    "epsilon-limit": (
        {"privacy.epsilon": 0.0, "privacy.noise-multiplier": 0.1},
        {"epsilon-limit": 100.0},
    ),
    "delta 0.0001": ({}, {"delta-limit": 1e-4, "epsilon-limit": 3.1}),
}
"""A word of the client's refusal: what a server asks, and what else the client's file says."""


@pytest.mark.parametrize("word", REFUSED)
def test_what_the_client_did_not_agree_to_is_refused_and_nothing_is_charged(word, machine):
    changes, limits = REFUSED[word]
    before = _rows(machine)
    with pytest.raises(RuntimeError, match=f"client 0 failed: .*{word}"):
        inputs.deployed_training(
            {"run.out": "second"} | changes, {"epsilon-limit": 1e6} | limits, 2
        )
    assert _rows(machine) == before


def test_with_consent_experiments_are_answered_and_reported_as_no_guarantee(machine):
    inputs.deployed_training(
        {"run.out": "second", "privacy.noise-source": "seed"}, {"consent": "experiment"}, 2
    )
    report = _report(machine)
    # Noise that the server knows hides nothing: no epsilon is claimed for it.
    assert report["budget"]["epsilon"] == pytest.approx(2.0, rel=1e-6)
    assert len(_rows(machine)) == 8
