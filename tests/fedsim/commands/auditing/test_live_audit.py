"""An audit of what an auditor's node recorded: beliefs, a report, one line for bad input."""

import json
import shutil
import socket
import stat
from dataclasses import replace

import numpy as np
import pytest

import fedsim
from fedsim.configuration import from_run_config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import RUN_ID
from fedsim.federation.transcripts.reader import read_transcript
from fedsim.federation.transcripts.records import TranscriptFacts
from fedsim.federation.transcripts.writer import Writer
from tests.auditors_node import run_with_auditor
from tests.console import exit_of

ROUNDS, TRIALS = 2, 8


def _federation(folder, trials, noise_source="seed"):
    """Run a small federation with an auditor; transcripts/ and run/ are left in the folder."""
    config = from_run_config(
        {
            "data.records": 24,
            "data.held-out": 20,
            "data.pool": 30,
            "federation.clients": 2,
            "model.name": "linear",
            "training.rounds": ROUNDS,
            "trials.count": trials,
            "trials.batch": 4,
            "privacy.delta": 0.005,
            "privacy.noise-source": noise_source,
            "run.threads": 1,
            "run.device": "cpu",
        }
    )
    run_with_auditor(config, folder)
    return folder


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    return _federation(tmp_path_factory.mktemp("federation"), TRIALS)


def command(*arguments):
    return exit_of("audit", *arguments)


@pytest.mark.slow
def test_a_folder_stands_for_its_newest_transcript_and_gets_a_report_of_its_users_own(
    federation, capsys
):
    assert command(federation / "transcripts") == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "The auditor's belief that the target record" in " ".join(printed.out.split())
    directory = federation / "transcripts" / f"{RUN_ID}-audit"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}
    report = json.loads((directory / "report.json").read_text())
    found = report["details"]
    assert (found["rounds"], found["missed"], found["trials"]) == (ROUNDS, 0, TRIALS)
    attack = report["rows"]["auditor"]["attack"]
    assert attack is None or attack["advantage"] is None
    page = (directory / "report.html").read_text()
    assert page.count("<figure") == 2  # the bars, and the course of the belief
    assert "http" not in page.replace("http://www.w3.org", "")


def test_its_directory_passes_a_gate_and_is_verified_to_its_last_belief(
    federation, tmp_path, capsys
):
    recorded, out = federation / "transcripts" / f"{RUN_ID}.fedt", tmp_path / "audit"
    gate = "--fail-if", "belief > 0", "--fail-if", "epsilon > 100"
    assert command(recorded, "--out", out, *gate, "--follow") == 3
    assert "Gate shut: belief > 0" in capsys.readouterr().err
    assert exit_of("verify", out) == 3
    assert "it needs the clients' data" in capsys.readouterr().out
    believed = (out / "beliefs.jsonl").read_bytes()
    (out / "beliefs.jsonl").write_bytes(believed[:-2] + b"!\n")
    assert exit_of("verify", out) == 4
    assert "beliefs.jsonl: has changed" in capsys.readouterr().out


def test_every_belief_is_a_line_of_json(federation, tmp_path):
    assert command(federation / "transcripts" / f"{RUN_ID}.fedt", "--out", tmp_path / "a") == 0
    written = (tmp_path / "a" / "beliefs.jsonl").read_text()
    lines = [json.loads(line) for line in written.splitlines()]
    assert [(line["trials"], line["round"]) for line in lines] == [
        ([first, first + 4], round) for first in (0, 4) for round in (1, 2)
    ]
    believed = RunDirectory.open(federation / "run").read_arrays("transcript.npz")["log_odds"]
    for line in lines:
        expected = believed[slice(*line["trials"]), line["round"] - 1]
        np.testing.assert_allclose(line["log_odds"], expected, rtol=0, atol=1e-6)


def test_following_a_finished_transcript_ends_by_itself_and_keeps_each_belief(
    federation, tmp_path, capsys
):
    out, transcript = tmp_path / "a", federation / "transcripts" / f"{RUN_ID}.fedt"
    assert command("--follow", "--json", transcript, "--out", out) == 0
    lines = [*map(json.loads, (out / "beliefs.jsonl").read_text().splitlines())]
    assert [line["round"] for line in lines] == [1, 2, 1, 2]
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((out / "report.json").read_text())


def test_what_trainings_of_one_seed_release_together_is_not_known(federation, tmp_path, capsys):
    options = "--json", "--out", tmp_path / "a"
    claim = "--claimed-epsilon", 100, "--claimed-delta", 0.005
    assert command(federation / "transcripts", *options, *claim) == 4
    report = json.loads(capsys.readouterr().out)
    assert report["details"]["released_epsilon"] is None


@pytest.mark.slow
def test_the_exit_status_says_whether_the_claim_is_supported(federation, tmp_path, capsys):
    protected = _federation(tmp_path, 28, "system")
    for folder, claimed, options, status, said in (
        # What one training keeps, all twenty together do not.
        (
            protected,
            2.2,
            (),
            4,
            "is not supported. Why: The noise that the server states allows",
        ),
        (protected, 100, (), 3, "is not judged. Why: No measurement could have refuted the noise"),
        (
            protected,
            100,
            ("--claimed-unit", "client"),
            3,
            "is not judged. Why: The claim is about a client",
        ),
        (federation, 100, (), 4, "is not supported. Why: The noise came from the run's seed"),
    ):
        claim = ("--claimed-epsilon", claimed, "--claimed-delta", 1e-3)
        assert command(folder / "transcripts", *claim, *options) == status, said
        printed = " ".join(capsys.readouterr().out.split())
        assert f"The claim of epsilon {claimed} at delta 0.001 {said}" in printed


def test_what_could_not_have_refuted_a_claim_does_not_support_it(tmp_path, capsys):
    few = _federation(tmp_path, 2, "system")
    claim = ("--claimed-epsilon", 100, "--claimed-delta", 1e-3)
    assert command(few / "transcripts", *claim) == 3
    printed = " ".join(capsys.readouterr().out.split())
    assert "is not judged. Why: No measurement could have refuted the noise" in printed
    assert "The limit is of one training." in printed
    found = fedsim.audit(few / "transcripts" / f"{RUN_ID}.fedt").details
    assert found.epsilon == found.details.released_epsilon > found.row.epsilon


def test_canaries_need_no_data(federation, tmp_path, capsys):
    (tmp_path / "seed").write_text("11\n")
    options = ("--no-challenge", "--canary-seed-file", tmp_path / "seed", "--out", tmp_path / "a")
    assert command(federation / "transcripts", "--json", *options) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["details"]["belief"] is None
    assert (report["details"]["rounds"], report["details"]["missed"]) == (ROUNDS, 0)
    # Nobody added any: the interval must not exclude it.
    assert report["details"]["canaries"]["interval"][0] <= 0
    assert report["details"]["canaries"]["claimed_mu"] > 0
    assert report["alarms"] == 0


def test_what_cannot_be_audited_is_one_line_and_status_2(federation, tmp_path, capsys):
    recorded, out = federation / "transcripts", tmp_path / "a"
    with Writer(tmp_path / "server.fedt", TranscriptFacts("server", "a test")) as writer:
        writer.end()
    (tmp_path / "words").write_text("eleven")
    (tmp_path / "empty").mkdir()
    elsewhere = tmp_path / "mnist.fedt"
    found = read_transcript(recorded / f"{RUN_ID}.fedt")
    with Writer(elsewhere, found.facts) as writer:
        for each in found.rounds:
            writer.append(replace(each, mechanism={**each.mechanism, "data.name": "mnist"}))
        writer.end()
    for arguments, said in (
        ((recorded, "--canary-seed-file", tmp_path / "nowhere"), "cannot read seeds"),
        ((recorded, "--canary-seed-file", tmp_path / "words"), "cannot read seeds"),
        ((federation / "run",), "run fedsim report"),
        ((tmp_path / "server.fedt", "--data-root", tmp_path), "so leave it out"),
        ((recorded, "--delta", "1e-3"), "leave it out"),
        ((recorded, "--claimed-epsilon", "1"), "needs both"),
        ((recorded, "--confidence", "1.5"), "confidence is 1.5"),
        ((recorded, "--no-challenge"), "give their seeds with --canary-seed-file"),
        ((elsewhere, "--data-root", tmp_path / "nowhere", "--out", out), "there is no folder"),
        ((elsewhere, "--out", out), "give this machine's folder with --data-root"),
        ((recorded, "--out", tmp_path / "words"), "cannot write"),
        ((tmp_path / "empty",), "holds no transcript"),
    ):
        options = ("--out", out) if arguments[0] == recorded and "--out" not in arguments else ()
        assert command(*arguments, *options) == 2, arguments
        printed = capsys.readouterr()
        assert said in printed.err
        assert printed.err.count("\n") == 1, printed.err
        assert printed.out == ""
        assert not out.exists(), arguments


def test_a_foreign_transcript_opens_no_folder_that_it_names_and_no_connection(
    federation, tmp_path, capsys, monkeypatch
):
    def connect(*_, **__):
        raise AssertionError("the audit opened a connection")

    monkeypatch.setattr(socket.socket, "connect", connect)
    mine, hers = tmp_path / "private", tmp_path / "foreign.fedt"
    mine.mkdir()
    (mine / "data.npz").write_bytes(b"nobody asked to have this read")
    found = read_transcript(federation / "transcripts" / f"{RUN_ID}.fedt")
    for name, place in (("npz", mine / "data.npz"), ("mnist", tmp_path / "new")):
        told = {"data.name": name, "data.root": str(place), "data.download": True}
        shutil.rmtree(hers, ignore_errors=True)
        with Writer(hers, found.facts) as writer:
            for each in found.rounds:
                writer.append(replace(each, mechanism={**each.mechanism, **told}))
            writer.end()
        assert command(hers, "--out", tmp_path / "a") == 2
        said = capsys.readouterr().err
        assert "does not open a folder that a transcript names" in said
        assert not (tmp_path / "new").exists()
