"""An auditor who holds nobody's records convicts who adds half of the noise, and nobody else."""

import json

import pytest

from adversaries.statistics import gaussian
from fedsim import server_app
from fedsim.configuration import JOBS, from_run_config
from fedsim.federation.client import client_ledger, training_node
from fedsim.federation.server import acceptance
from fedsim.federation.server.plan import prepare
from fedsim.reports import model_card
from tests.auditors_node import with_auditor
from tests.console import exit_of

SEED, COUNT = 17, 300

SEEN = 0.5
"""Noise below this share of the claimed the audit of `TRAINING` would have seen."""

TRAINING = {
    "data.records": 600,
    "federation.clients": 3,
    "federation.trust": "local",
    "federation.vantage": "server",
    "federation.auditor-sees": "messages",
    "model.name": "linear",
    "training.rounds": 8,
    "training.learning-rate": 2.0,
    "privacy.rho-beta": 0.0,
    "privacy.noise-multiplier": 2.0,
    "run.threads": 1,
    "run.device": "cpu",
}


def _trained(folder, changes, run_id=1):
    """Train with an auditor, to whom the first client gave the seed of its canaries.

    run_id: as Flower has it, which numbers a resumed training anew.
    """
    values = TRAINING | changes | {"run.out": str(folder / "run")}
    plan = prepare(from_run_config(JOBS["training"](values)))
    directory = plan.begin()
    grid = with_auditor(plan.config, folder / "transcripts", run_id)
    consenting = {"canary-seed": SEED, "canary-count": COUNT}
    consenting |= {"consent": "canaries", "state-path": str(folder / "state")}
    consenting |= {"epsilon-limit": 1e9, "delta-limit": 1e-3}
    grid.contexts[1000].node_config.update(consenting)
    server_app.carry_out(grid, plan, directory)
    return directory


def _audit(folder, capsys, *options):
    """Return the exit status of an audit with the canaries' seed, and its report."""
    (folder / "seeds").write_text(f"{SEED} {COUNT}\n")
    command = [
        "audit",
        folder / "transcripts",
        "--json",
        "--canary-seed-file",
        folder / "seeds",
    ]
    command += ["--out", folder / "audit", *options]
    capsys.readouterr()
    status = exit_of(*command)
    return status, json.loads(capsys.readouterr().out)


@pytest.fixture
def one_adds_half(monkeypatch):
    """Let the second client draw noise of half the standard deviation."""
    really = training_node._noise

    def drawn(received, *others):
        return really(received, *others) * (0.5 if received.partition == 1 else 1.0)

    monkeypatch.setattr(training_node, "_noise", drawn)


@pytest.mark.slow
def test_the_honest_training_is_acquitted(tmp_path, capsys):
    directory = _trained(tmp_path, {})
    privacy = model_card.read_card(directory).privacy
    # Who sees every message is told what the server is told.
    epsilon = privacy.towards[0].epsilon["pld"]
    claim = ("--claimed-epsilon", 1.0001 * epsilon, "--claimed-delta", privacy.delta)
    status, report = _audit(tmp_path, capsys, *claim)
    assert report["rows"]["auditor"]["limit"]["epsilon"] == pytest.approx(epsilon, rel=1e-9)
    assert (status, report["alarms"]) == (0, 0)
    assert report["verdict"] == "supported"
    assert set(report["details"]["noise_at_most"]) == {"sum", "client-0", "client-1", "client-2"}
    assert all(1 < limit < 1.5 for limit in report["details"]["noise_at_most"].values())
    assert SEEN < report["rows"]["auditor"]["detects"] < 1
    canaries = report["details"]["canaries"]
    assert canaries["canaries"] == COUNT
    # The noise of all three clients together hides a canary.
    assert canaries["claimed_mu"] == pytest.approx((8 / 3 / 4) ** 0.5)
    assert 0 < canaries["interval"][0] < canaries["mu"] < 1.3 * canaries["claimed_mu"]
    least = gaussian.advantage(canaries["interval"][0])
    assert least < report["rows"]["auditor"]["limit"]["rho_alpha"]
    lines = (tmp_path / "audit" / "beliefs.jsonl").read_text().splitlines()
    looks = [json.loads(line) for line in lines]
    assert [look["round"] for look in looks] == list(range(1, 9))
    assert looks[0]["canaries"]["belief"] < looks[-1]["canaries"]["belief"]


def test_noise_that_an_honest_audit_would_have_noticed_to_fall_short_is_seen(
    tmp_path, capsys, monkeypatch
):
    really = training_node._noise
    monkeypatch.setattr(training_node, "_noise", lambda *given: SEEN * really(*given))
    _trained(tmp_path, {})
    status, report = _audit(tmp_path, capsys, "--claimed-epsilon", 99, "--claimed-delta", 0.001)
    assert status == 4
    assert any("The released sums have less" in each["why"] for each in report["findings"])
    assert report["verdict"] == "suspect"
    stated = report["rows"]["auditor"]["limit"]["epsilon"]
    claim = ("--claimed-epsilon", stated, "--claimed-delta", report["delta"])
    status, report = _audit(tmp_path, capsys, *claim)
    assert (status, report["verdict"]) == (4, "convicted")
    assert stated < report["rows"]["auditor"]["attack"]["proven"] < 1.2 * stated / SEEN


def test_canaries_that_records_hide_show_no_least_noise(tmp_path, capsys, monkeypatch):
    really = training_node._noise
    monkeypatch.setattr(training_node, "_noise", lambda *given: SEEN * really(*given))
    changes = {"privacy.noise-multiplier": 0.3, "training.rounds": 6, "data.held-out": 20}
    _trained(tmp_path, changes | {"federation.auditor-sees": "sums", "privacy.delta": 0.001})
    status, report = _audit(tmp_path, capsys, "--fail-if", "noise.low < .9")
    assert (status, report["alarms"]) == (3, 0)
    noise = report["rows"]["auditor"]["noise"]
    # The sums say more here than the canaries.
    assert noise["low"] == 0 and SEEN < noise["high"] < 2


@pytest.mark.slow
def test_who_adds_half_of_the_noise_is_named(one_adds_half, tmp_path, capsys):
    _trained(tmp_path, {})
    claim = ("--claimed-epsilon", 99, "--claimed-delta", 0.001)
    status, report = _audit(tmp_path, capsys, *claim)
    assert status == 4
    named = [alarm for alarm in (each["why"] for each in report["findings"]) if "client-" in alarm]
    assert len(named) == 1
    assert named[0].startswith("The messages of client-1 have less than 0.")
    assert 0.5 < report["details"]["noise_at_most"]["client-1"] < 0.8
    assert min(report["details"]["noise_at_most"][f"client-{honest}"] for honest in (0, 2)) > 1


def test_sums_that_the_records_fill_support_no_claim(tmp_path, capsys):
    # 600 records beside the noise of a fiftieth of one, in two rounds.
    changes = {"privacy.noise-multiplier": 0.02, "training.rounds": 2, "data.held-out": 20}
    _trained(tmp_path, changes | {"federation.auditor-sees": "sums", "privacy.delta": 0.001})
    claim = ("--claimed-epsilon", 1e9, "--claimed-delta", 0.001)
    recorded, out = tmp_path / "transcripts", tmp_path / "b"
    assert exit_of("audit", recorded, *claim, "--out", out) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "No measurement could have refuted the noise" in said


class Killed(BaseException):
    """What a signal does, in a test."""


@pytest.mark.slow
def test_of_a_resumed_training_the_auditor_counts_what_left_once(tmp_path, monkeypatch, capsys):
    really = acceptance.accept_round

    def killed(batch, round, *rest):
        if round.number == 6:
            raise Killed
        return really(batch, round, *rest)

    monkeypatch.setattr(acceptance, "accept_round", killed)
    with pytest.raises(Killed):
        _trained(tmp_path, {})
    monkeypatch.undo()
    privacy = model_card.read_card(_trained(tmp_path, {}, run_id=2)).privacy
    assert privacy.rounds_charged == 8
    _, report = _audit(tmp_path, capsys)
    assert report["details"]["facts"]["run"] == "2"
    assert report["details"]["missed"] == 0
    stated = report["rows"]["auditor"]["limit"]["epsilon"]
    assert stated == pytest.approx(privacy.towards[0].epsilon["pld"], rel=1e-9)
    answers = client_ledger.read_answers(tmp_path / "state")
    spent = client_ledger.epsilon(answers, privacy.delta)
    assert spent == pytest.approx(report["rows"]["auditor"]["limit"]["epsilon"], rel=1e-9)
