"""An administrator sees at one glance who is there, what runs and what is about to end."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from fedsim.deployment import check, kit, run
from fedsim.deployment import run as deployment
from fedsim.deployment.run import Registration
from fedsim.federation.runs.run_directory import LAST_FILE, RunDirectory
from fedsim.federation.runtimes import flower_command
from fedsim.federation.runtimes.flower_command import FlowerError
from fedsim.federation.server.nodes import REGISTERED, note_busy

SINCE = "2026-01-02T03:04:05+00:00"


@pytest.fixture
def nodes(monkeypatch):
    """What the SuperLink says of its nodes: one is there, one was."""
    listed = [
        {"node-id": "7", "status": "online", "online-at": SINCE},
        {"node-id": "8", "status": "offline", "offline-at": SINCE},
    ]

    def flwr(_, command, *__):
        if not listed:
            raise FlowerError("listing ...\n\nunavailable")
        return {"nodes": listed} if command == "supernode" else {"runs": [{"status": "running"}]}

    for module in (deployment, flower_command):
        monkeypatch.setattr(module, "flwr", flwr)
    asked = check.server_connection
    monkeypatch.setattr(
        check, "server_connection", lambda checked: iter(()) if listed else asked(checked)
    )
    return listed


def _deployed(tmp_path, **options):
    kit.write_kit(tmp_path / "kit", "127.0.0.1", 8443, 2, **options)
    server = tmp_path / "kit" / "server"
    known = {f"client-{k}": Registration(str(7 + k), "SHA256:") for k in range(2)}
    run.write_registered(server, known)
    return server


def test_status_says_who_is_away_and_which_round_is_done(fedsim, tmp_path, nodes, monkeypatch):
    server = _deployed(tmp_path)
    (tmp_path / "run").mkdir()
    directory = RunDirectory(tmp_path / "run")
    directory.log_event(phase="training", rounds=9)
    directory.log_event(round=4, trials=[0, 1])
    kit.write_file(
        server / "run.json", json.dumps({"run-id": "5", "directory": str(directory.path)})
    )
    status, out, _ = fedsim("deploy", "status", server)
    assert status == 1
    assert f"client-0: connected since {SINCE}" in out
    assert f"client-1: away since {SINCE}" in out
    assert f"{directory.path}: running, round 4 of 9" in out
    assert "wrong: client-1 is away" in out
    nodes[1] = {"node-id": "8", "status": "online", "online-at": SINCE}
    status, out, _ = fedsim("deploy", "status", server, "--json")
    found = json.loads(out)
    assert (status, found["problems"], found["run"]["round"]) == (0, [], 4)
    assert [node["state"] for node in found["nodes"]] == ["connected", "connected"]
    failed = {"status": "finished:failed", "status-details": "Task failed with unknown error."}
    monkeypatch.setattr(flower_command, "flwr", lambda *_: {"runs": [failed]})
    status, out, _ = fedsim("deploy", "status", server)
    assert f"{directory.path}: finished:failed, round 4 of 9" in out
    assert "the run's process on the server ended before the run" in out
    completed = {"status": "finished:completed", "status-details": "N/A"}
    monkeypatch.setattr(flower_command, "flwr", lambda *_: {"runs": [completed]})
    directory.write_json(LAST_FILE, {})
    _, out, _ = fedsim("deploy", "status", server)
    assert "finished:completed, round 4 of 9" in out
    assert "N/A" not in out


def test_status_says_which_client_keeps_the_server_waiting(fedsim, tmp_path, nodes):
    server = _deployed(tmp_path)
    nodes[1] = {"node-id": "8", "status": "online", "online-at": SINCE}
    (tmp_path / "run").mkdir()
    directory = RunDirectory(tmp_path / "run")
    last = {"run-id": "5", "directory": str(directory.path)}
    kit.write_file(server / "run.json", json.dumps(last))
    directory.write_json(REGISTERED, {"0": 7, "1": 8})
    note_busy(directory, {8}, 61.0)
    status, out, _ = fedsim("deploy", "status", server)
    assert (status, re.findall(r"(\S+): no answer for 6\d s", out)) == (0, ["client-1"])
    note_busy(directory, set(), 80.0)
    _, out, _ = fedsim("deploy", "status", server, "--json")
    assert json.loads(out)["run"]["busy"] == {}


def test_status_says_what_ends_and_that_the_superlink_is_away(fedsim, tmp_path, nodes):
    server = _deployed(tmp_path, now=datetime.now(UTC) - timedelta(days=360))
    nodes.clear()
    status, out, _ = fedsim("deploy", "status", server)
    assert (status, "certificate: 5 days left" in out) == (1, True)
    assert "wrong: the certificate expires in 5 days; run fedsim deploy renew KIT" in out
    for part in ("SuperLink", "proxy"):
        assert f"wrong: the {part} does not answer on port" in out
    assert len(out.splitlines()) == 5
