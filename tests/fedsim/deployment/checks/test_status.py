"""The status of a federation names what does not answer, and why a run failed."""

import json
import socket

import pytest

from fedsim.commands.terminal import Terminal
from fedsim.deployment import kit, run, submission, supervision
from fedsim.deployment.checks import server as checks
from fedsim.deployment.checks import status
from fedsim.federation.runs.run_directory import LAST_FILE
from fedsim.federation.runtimes.flower_command import Submission
from tests import console


@pytest.fixture
def submitted(written, tmp_path, monkeypatch):
    """Flower's status of the last run and its details, at a server whose services are well."""
    said = ["finished:completed", ""]
    (tmp_path / "run").mkdir()
    kit.write_file(
        written / "server" / run.LAST,
        json.dumps({"run-id": "3", "directory": f"{tmp_path / 'run'}"}),
    )
    monkeypatch.setattr(checks, "services", lambda *_: ())
    monkeypatch.setattr(run, "nodes", lambda _: [])
    monkeypatch.setattr(Submission, "status", lambda _: tuple(said))
    return said


def test_a_run_that_failed_says_why(written, submitted):
    submitted[:] = "finished:failed", "ServerApp failed with exception: cannot write: disk full"
    said = console.run(["deploy", "status", f"{written}"]).output
    assert "run: finished:failed, round 0 of 0\n" in said
    assert "run: cannot write: disk full\n" in said


def test_a_run_without_its_last_file_has_failed(written, tmp_path, submitted):
    last = status.status(written / "server").run
    assert last is not None
    assert (last.state, "has no report.json" in last.reason) == ("finished:failed", True)
    (tmp_path / "run" / LAST_FILE).touch()
    last = status.status(written / "server").run
    assert last is not None
    assert (last.state, last.reason) == ("finished:completed", "")


def test_a_server_whose_services_do_not_answer(written):
    found = status.status(written / "server")
    for name in ("superlink", "proxy"):
        assert any(line.startswith(f"{name}: does not answer on port") for line in found.problems)
    assert found.nodes == ()


def test_a_superlink_without_the_program_that_starts_runs(written, monkeypatch, capsys):
    monkeypatch.setattr(supervision, "missing", lambda *_: ["flower-superexec"])
    monkeypatch.setattr(checks, "_speaks_tls", lambda *_: True)
    server = written / "server"
    ports = [kit.port(server, name) for name in ("SUPERLINK_PORT", "PORT")]
    with (
        socket.create_server(("127.0.0.1", ports[0])),
        socket.create_server(("127.0.0.1", ports[1])),
    ):
        lines = [*checks.services(server, kit.read_kit(server))]
        submission._say_why(server, Terminal(), "pending", 15.2)
    assert [(what, state) for what, state, _ in lines] == [("superlink", "wrong"), ("proxy", "ok")]
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith(
        "the run is pending for 15 s: superlink: flower-superexec has ended, so no run can"
    )
