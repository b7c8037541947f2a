"""`fedsim run` as a user types it: what it leaves, what it says, and how it ends."""

import json
import re
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress

from fedsim import __version__
from fedsim.reports.tracking.progress import ProgressBar, measuring


def test_a_run_leaves_a_report_and_can_be_repeated(fedsim, experiment, tmp_path):
    status, out, err = fedsim("run", experiment, "--out", tmp_path / "run", "--quiet")
    assert (status, out, err) == (0, "", "")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {
        "lock",
        "identity",
        "config.toml",
        "events.jsonl",
        "batches",
        "ledger.jsonl",
        "facts.json",
        "transcript.npz",
        "report.json",
        "report.html",
        "figures",
    }
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert 0 <= report["details"]["data"]["mean_label_skew"] < 1
    assert "Label skew" in (tmp_path / "run" / "report.html").read_text()
    assert report["details"]["trials"] == 8
    again = tmp_path / "again"
    status, _, _ = fedsim("run", tmp_path / "run" / "config.toml", "--out", again, "--quiet")
    assert status == 0
    repeated = json.loads((again / "report.json").read_text())
    assert repeated["details"]["empirical"] == report["details"]["empirical"]


def test_a_finished_run_is_not_overwritten(fedsim, experiment, tmp_path):
    fedsim("run", experiment, "--out", tmp_path / "run", "--quiet")
    before = (tmp_path / "run" / "report.json").stat().st_mtime_ns
    status, _, err = fedsim("run", experiment, "--out", tmp_path / "run")
    assert status == 0
    assert "holds this run, finished" in " ".join(err.split())
    assert (tmp_path / "run" / "report.json").stat().st_mtime_ns == before


def test_the_summary_and_the_place_of_the_report_are_printed(fedsim, experiment, tmp_path):
    status, out, err = fedsim("run", experiment, "--out", tmp_path / "run")
    assert status == 0
    assert err.startswith("Warning: With central trust, the server sees each client's sum")
    lines = out.splitlines()
    assert len(lines) <= 20
    assert lines[-2].startswith("0 alarms, 3 to decide.")
    assert str(tmp_path / "run" / "report.html") in lines[-1]
    assert "s start-up" not in out
    status, out, _ = fedsim("report", tmp_path / "run", "--verbose")
    assert (status, "ε at least" in out) == (0, True)


def test_report_restates_every_bound_at_another_confidence_and_delta(fedsim, experiment, tmp_path):
    fedsim("run", experiment, "--out", tmp_path / "run", "--quiet")
    wide = json.loads((tmp_path / "run" / "report.json").read_text())["rows"]
    status, _, _ = fedsim("report", tmp_path / "run", "audit.confidence=0.5")
    assert status == 0
    narrow = json.loads((tmp_path / "run" / "report.json").read_text())["rows"]
    ends = (rows["participant"]["attack"]["interval"] for rows in (narrow, wide))
    assert np.ptp(next(ends)) < np.ptp(next(ends))
    status, out, _ = fedsim("report", tmp_path / "run", "privacy.delta=0.02", "--json")
    assert status == 0
    assert json.loads(out) == json.loads((tmp_path / "run" / "report.json").read_text())
    assert json.loads(out)["delta"] == 0.02
    status, _, err = fedsim("report", tmp_path / "run", "audit.confidence=1.5")
    assert status == 2
    assert "confidence is 1.5" in err


@pytest.mark.parametrize(
    "damage", [b"", b"PK\x03\x04 truncated", b"not an archive"], ids=["empty", "truncated", "other"]
)
def test_a_damaged_transcript_is_named_with_its_remedy(damage, fedsim, experiment, tmp_path):
    fedsim("run", experiment, "--out", tmp_path / "run", "--quiet")
    (tmp_path / "run" / "transcript.npz").write_bytes(damage)
    (tmp_path / "run" / "report.json").unlink()
    status, _, err = fedsim("report", tmp_path / "run")
    assert status == 2
    assert "transcript.npz" in err
    assert "continue with fedsim run" in err
    assert "pickle" not in err
    status, _, _ = fedsim("run", tmp_path / "run", "--quiet")
    assert status == 0


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}"])
def test_damaged_facts_and_reports_are_named_with_their_remedies(
    damage, fedsim, experiment, tmp_path
):
    run = tmp_path / "run"
    fedsim("run", experiment, "--out", run, "--quiet")
    (run / "report.json").write_text(damage)
    for command in (["run", run], ["report", run, run]):
        status, _, err = fedsim(*command)
        assert status == 2
        assert f"delete it, and write it again with fedsim report {run}" in err
        assert len(err.strip().splitlines()) == 1
    (run / "report.json").unlink()
    status, _, _ = fedsim("report", run)
    assert status == 0
    (run / "facts.json").write_text(damage)
    status, _, err = fedsim("report", run)
    assert status == 2
    assert "facts.json in" in err
    assert "delete it (and report.json, if there is one) and continue with fedsim run" in err
    (run / "facts.json").unlink()
    (run / "report.json").unlink()
    status, _, _ = fedsim("run", run, "--quiet")
    assert status == 0


def test_the_damaged_configuration_of_a_run_is_named_with_its_remedy(fedsim, experiment, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.toml").write_text("[data")
    for command in (["report", run], ["run", experiment, "--out", run], ["run", run]):
        status, _, err = fedsim(*command)
        assert status == 2
        assert "restore config.toml from a copy, or name a new directory for another run" in err
        assert len(err.strip().splitlines()) == 1


def test_a_run_directory_may_be_moved_and_its_configuration_run_again(
    fedsim, experiment, tmp_path, monkeypatch
):
    fedsim("run", experiment, "--out", tmp_path / "run", "--quiet")
    (tmp_path / "run").rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved")
    assert fedsim("run", "config.toml", "--quiet")[0] == 0
    assert len(list((tmp_path / "moved" / "fedsim-runs").glob("*/report.json"))) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "delay"),  # torch is being imported meanwhile
    [(signal.SIGINT, 0.0), (signal.SIGTERM, 0.5), (signal.SIGINT, 1.0), (signal.SIGTERM, 2.5)],
)
def test_an_early_stop_is_one_line(number, delay, experiment, tmp_path):
    command = [str(Path(sys.executable).parent / "fedsim"), "run", str(experiment)]
    arguments = ["trials.count=4000", "--out", str(tmp_path / "run"), "--quiet"]
    with subprocess.Popen([*command, *arguments], stderr=subprocess.PIPE, text=True) as process:
        _until_caught(process, signal.SIGTERM)
        time.sleep(delay)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.startswith("fedsim: interrupted")
    assert len(err.strip().splitlines()) == 1


def test_an_interruption_while_an_object_is_deleted_is_not_lost():
    deleting = """
import time
import fedsim.commands.main
from fedsim.commands import entry

class Deleted:
    def __del__(self):
        raise KeyboardInterrupt

def run():
    Deleted()
    time.sleep(60)

fedsim.commands.main.main = run
entry.main()
"""
    command = [sys.executable, "-c", deleting]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    assert (found.returncode, found.stderr) == (130, "fedsim: interrupted\n")


def _until_caught(process, number):
    # On a loaded machine the interpreter itself takes its time.
    if not (status := Path(f"/proc/{process.pid}/status")).exists():
        time.sleep(1)  # no Linux
        return
    for _ in range(600):
        caught = re.search(r"^SigCgt:\s*(\w+)", status.read_text(), re.MULTILINE)
        if caught and int(caught[1], 16) >> (number - 1) & 1:
            return
        time.sleep(0.05)
    pytest.fail("the command never began")


def test_the_command_line_waits_for_nothing_that_computes():
    loaded = (
        "import sys, fedsim.commands.main; print({'torch', 'flwr', 'matplotlib'} & {*sys.modules})"
    )
    command = [sys.executable, "-c", loaded]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout == "set()\n"


@pytest.mark.slow
def test_ctrl_c_keeps_finished_batches_and_the_run_resumes(fedsim, experiment, tmp_path):
    command = [str(Path(sys.executable).parent / "fedsim"), "run"]
    out = tmp_path / "run"
    long = ["trials.count=800", "trials.batch=20", "--out", str(out)]
    with subprocess.Popen(
        [*command, str(experiment), *long], stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 120
        while not list(out.glob("batches/*.npz")):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"To continue, run fedsim run {out}" in " ".join(err.split())
    assert "Traceback" not in err
    assert not (out / "report.json").exists()
    kept = {path: path.stat().st_mtime_ns for path in out.glob("batches/*.npz")}
    assert fedsim("run", out, "--quiet")[0] == 0
    assert (out / "report.json").exists()
    assert all(path.stat().st_mtime_ns == time for path, time in kept.items())


def test_a_report_at_another_delta_restates_the_budget(fedsim, experiment, tmp_path):
    limit = ["privacy.stop-at=1.9"]
    fedsim("run", experiment, "--out", tmp_path / "run", "--quiet", *limit)
    first = json.loads((tmp_path / "run" / "report.json").read_text())
    assert first["details"]["budget"]["stopped"]
    assert fedsim("report", tmp_path / "run", "privacy.delta=0.0005")[0] == 0
    second = json.loads((tmp_path / "run" / "report.json").read_text())
    for report in (first, second):
        spent = report["details"]["budget"]["epsilon_by_round"]
        assert len(spent) == report["details"]["rounds"] == 2
        assert spent[-1] == report["details"]["budget"]["epsilon"]["participant"]
        assert spent[-1] == pytest.approx(report["rows"]["participant"]["limit"]["epsilon"])
    early, late = first["details"]["budget"], second["details"]["budget"]
    assert late["epsilon_by_round"] > early["epsilon_by_round"]
    assert late["stop_at_delta"] == early["delta"]
    status, out, _ = fedsim("report", tmp_path / "run")
    assert status == 0
    assert "stopped after 2 of 3 rounds" in " ".join(out.split())


@pytest.mark.parametrize("runtime", ["inprocess", "simulation"])
def test_a_batch_that_was_deleted_has_spent_its_budget(runtime, fedsim, experiment, tmp_path):
    changes = ["privacy.noise-source=system", "privacy.stop-at=2.2"]
    changes += ["trials.count=1"]
    fedsim("run", experiment, "--out", tmp_path / "run", "--quiet", *changes)
    (tmp_path / "run" / "report.json").unlink()
    (tmp_path / "run" / "batches" / "000000.npz").unlink()
    ledger = (tmp_path / "run" / "ledger.jsonl").read_bytes()
    status, _, err = fedsim(
        "run", tmp_path / "run", *(["--simulation"] if runtime == "simulation" else [])
    )
    assert status == 2
    assert "of which 2.197 is spent" in err
    assert len(err.strip().splitlines()) == 1
    assert (tmp_path / "run" / "ledger.jsonl").read_bytes() == ledger


def test_a_continued_run_that_costs_more_than_configured_asks_first(fedsim, experiment, tmp_path):
    one = ["trials.count=1", "privacy.noise-source=system"]
    fedsim("run", experiment, "--out", tmp_path / "run", "--quiet", *one)
    (tmp_path / "run" / "report.json").unlink()
    (tmp_path / "run" / "batches" / "000000.npz").unlink()  # as if it had been killed at its end
    status, _, err = fedsim("run", tmp_path / "run")
    assert (status, len(err.strip().splitlines())) == (2, 1)
    assert "will have released epsilon 3.453 " in err
    assert "its configuration plans 2.197" in err
    (enough,) = re.findall(r"add privacy.stop-at=(\S+)", err)
    again = ["--out", tmp_path / "run", "--quiet", *one]
    assert fedsim("run", experiment, *again, "privacy.stop-at=2.2")[0] == 2
    config = tmp_path / "run" / "config.toml"
    config.write_text(re.sub("stop-at = .*", f"stop-at = {enough}", config.read_text()))
    assert fedsim("run", tmp_path / "run", "--quiet")[0] == 0
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["details"]["rounds"] == 3
    assert 3.45 < report["details"]["released"]["epsilon"] < float(enough)
    finished = config.read_bytes()
    status, _, err = fedsim("run", experiment, *again, "privacy.stop-at=99")
    assert (status, "holds a finished run with other limits" in err) == (2, True)
    assert config.read_bytes() == finished
    assert report["rows"]["participant"]["limit"]["epsilon"] == pytest.approx(
        report["details"]["released"]["epsilon"]
    )


@pytest.mark.slow
@pytest.mark.parametrize("source", ["system", pytest.param("seed", marks=pytest.mark.long)])
def test_what_a_killed_process_released_stays_in_the_account(source, fedsim, experiment, tmp_path):
    command = [str(Path(sys.executable).parent / "fedsim"), "run"]
    out = tmp_path / "run"
    changes = [f"privacy.noise-source={source}", "training.rounds=250", "--quiet"]
    with subprocess.Popen([*command, str(experiment), *changes, "--out", str(out)]) as process:
        deadline = time.monotonic() + 120
        path = out / "ledger.jsonl"
        while not path.exists() or path.read_bytes().count(b"\n") < 30:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    released = path.read_bytes().count(b"\n")
    assert 30 <= released < 250
    changes += ["privacy.stop-at=99"]  # as only noise of the system needs
    assert fedsim("run", experiment, *changes, "--out", out)[0] == 0
    report = json.loads((out / "report.json").read_text())
    added = released if source == "system" else 0
    assert report["details"]["budget"]["earlier_attempts"] == added
    assert report["details"]["mechanism"]["steps"] == 250 + added
    ratio = report["details"]["budget"]["epsilon"]["participant"] / np.log(9)
    assert ratio > 1.01 if added else ratio == pytest.approx(1)


def test_the_progress_bar_is_full_at_the_end_of_a_training_that_stops_early(small):
    config = small({"trials.batch": 4, "training.rounds": 30})
    bar = Progress(disable=True)
    seen, shown = ProgressBar(bar, config.trials, 30, "campaign"), []
    for event in [
        {"phase": "training", "rounds": 2},
        {"round": 1, "trials": [0, 4], "epsilon": 0.5, "accuracy": 0.25},
        {"round": 2, "trials": [0, 4], "epsilon": None},
        {"phase": "batch", "trials": [0, 4], "advantage": 0.5, "accuracy": 0.25, "belief": 0.75},
        {"round": 2, "trials": [4, 8], "epsilon": 0.75, "accuracy": 0.1},
        {"phase": "batch", "trials": [4, 8]},
    ]:
        seen.see(event)
        shown.append((bar.tasks[0].completed, bar.tasks[0].description))
    assert [done for done, _ in shown] == [0, 1, 2, 3, 5, 6]
    assert bar.tasks[0].total == 6
    assert shown[1][1] == "trials 0-3, accuracy 25.0%"
    assert shown[4][1] == "trials 4-7, advantage 0.50, worst belief 75.0%, accuracy 10.0%"


def test_a_client_that_stays_away_is_named_once_where_no_bar_is_shown(small):
    said = StringIO()
    progress = Progress(console=Console(file=said, width=200), disable=True)
    bar = ProgressBar(progress, small().trials, 9, "campaign")
    for round in (4, 5):
        away = {"dropped": 2, "of": f"round {round}", "reason": "client 2 failed: it is gone."}
        bar.see(away)
    bar.see({"dropped": None, "of": "round 5", "reason": "a stranger"})
    assert said.getvalue() == "client 2 failed: it is gone; round 4 goes on without it\n"


def test_runs_are_compared_by_trust_and_vantage(fedsim, experiment, tmp_path):
    runs = []
    for trust in ("central", "local"):
        runs.append(tmp_path / trust)
        settings = [f"federation.trust={trust}", "audit.vantages=all", "training.rounds=2"]
        overrides = [word for setting in settings for word in (setting,)]
        status, _, _ = fedsim("run", experiment, "--out", runs[-1], "--quiet", *overrides)
        assert status == 0
    status, out, _ = fedsim("report", *runs, "--json")
    assert status == 0
    rows = json.loads(out)["runs"]
    assert len(rows) == 6
    assert {row["trust"] for row in rows} == {"central", "local"}
    assert all(row["measured"] is not None for row in rows)
    assert rows[0]["vantage"] == "server"
    assert rows[0]["measured"] == 1
    status, out, _ = fedsim("report", *runs)
    assert status == 0
    assert "released" in out
    status, out, error = fedsim("report", *runs, "--confidence", 0.9)
    assert (status, out) == (2, "")
    assert "--confidence" in error
    assert [row["directory"] for row in rows] == [str(run) for run in runs for _ in range(3)]
    status, out, error = fedsim("report", runs[0], runs[0] / ".." / "central")
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert "give each run once" in error


@pytest.mark.parametrize("vantage", ["server", "released-model"])
def test_any_vantage_can_have_the_headline(vantage, fedsim, experiment, tmp_path):
    out = tmp_path / "run"
    settings = [f"federation.vantage={vantage}", "privacy.rho-beta=0.0"]
    settings += ["privacy.noise-multiplier=2.0", "training.rounds=2"]
    overrides = [word for setting in settings for word in (setting,)]
    status, _, error = fedsim("run", experiment, "--out", out, *overrides)
    assert status == 0, error
    report = json.loads((out / "report.json").read_text())
    assert report["vantage"] == vantage
    row = report["rows"][vantage]
    assert row["attack"]["estimator"] == report["details"]["empirical"]["leading"]
    assert (row["limit"]["epsilon"] == "Infinity") == (vantage == "server")
    assert ">Every observer in numbers <a" in (out / "report.html").read_text()


def test_a_search_for_the_challenge_shows_how_far_it_is(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")  # rich draws no bars on a dumb one
    shown = StringIO()
    console = Console(file=shown, force_terminal=True, width=100)
    with measuring(console, "choosing the challenge", "preparing") as searched:
        searched(0.5)
    assert "preparing" in shown.getvalue()
    assert "choosing the challenge" in shown.getvalue()
    silent = StringIO()
    with measuring(Console(file=silent), "choosing the challenge") as searched:  # no terminal
        searched(0.5)
    assert not silent.getvalue().strip()


def test_without_ray_a_simulation_says_which_command_installs_it(
    fedsim, experiment, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "ray", None)
    command = ["run", experiment, "--simulation", "--out", tmp_path / "run"]
    status, _, err = fedsim(*command)
    assert status == 2
    assert 'pip install "flwr[simulation]==' in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("module", ["fedsim", "fedsim.commands.entry"])
def test_python_runs_the_command_as_a_module(module):
    ran = subprocess.run(
        [sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, f"{__version__}\n")
