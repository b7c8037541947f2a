"""Whether a server takes a node, and who its work, is found as it is."""

import os
import socket
import time

import pytest

from fedsim.deployment import kit, supervision
from fedsim.deployment.checks import node as supernode_checks
from fedsim.deployment.checks.connection import NOTE, OK, WRONG


@pytest.fixture
def running(written, change, monkeypatch):
    """The folder of a node that seems to be well, by its port alone."""
    place = written / "clients" / "client-0"
    monkeypatch.setattr(supernode_checks, "gives_tasks_to_anybody", lambda _: False)
    with socket.create_server(("127.0.0.1", 0)) as node:
        change(place, "NODE_PORT", node.getsockname()[1])
        yield place


def test_a_config_that_was_edited_while_the_node_runs(written, found, running):
    secret = running / "state" / "runtime" / "secret"
    kit.write_file(secret, "of a start under systemd, which leaves no supernode.pid")
    started = secret.stat().st_mtime
    os.utime(running / "node.toml", (started - 5, started - 5))
    assert "node.toml" not in found("client-0")
    os.utime(running / "node.toml", (started + 5, started + 5))
    assert "was edited after the node started" in found("client-0")["node.toml"]


def test_a_node_that_the_server_does_not_hear(found, running):
    kit.write_file(running / "logs" / "supernode.log", "OSError: disk full\n")
    said = "the server has not accepted this node yet (OSError: disk full)"
    assert said in found("client-0")["heartbeat"]
    heard = running / "state" / "runtime" / "heard"
    kit.write_file(heard, "")
    assert "heartbeat" not in found("client-0")
    os.utime(heard, (time.time() - 70,) * 2)
    said = "has answered none for 70 s, so it counts this node as away (OSError: disk full)"
    assert said in found("client-0")["heartbeat"]


def test_a_port_that_another_program_has(written, found, change, monkeypatch):
    monkeypatch.setattr(
        supernode_checks, "gives_tasks_to_anybody", lambda _: None
    )  # as it is in 5 s
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(0.1)
        port = other.getsockname()[1]
        change(written / "clients" / "client-0", "NODE_PORT", port)
        assert f"port {port} is taken" in found("client-0")["supernode"]


@pytest.mark.slow
def test_a_node_that_ended_by_itself_says_why(written, found):
    place = written / "clients" / "client-0"
    assert "supernode" not in found("client-0")
    (place / "supernode.pid").write_text("0\n")
    assert "has ended by itself (its log does not say why)" in found("client-0")["supernode"]
    (place / "logs").mkdir()
    (place / "logs" / "supernode.log").write_text("[code: 2004] Failed to activate SuperNode.\n")
    assert "([code: 2004] Failed to activate SuperNode.)" in found("client-0")["supernode"]


def test_a_runtime_api_that_is_anybodys(written, found, change, monkeypatch):
    monkeypatch.setattr(
        supernode_checks,
        "gives_tasks_to_anybody",
        lambda url: True if url.startswith("http:") else None,
    )
    monkeypatch.setattr(supervision, "number", lambda *_: 1)
    for host, said in (("127.0.0.1", "every account of this machine"), ("0.0.0.0", "on 0.0.0.0")):
        with socket.create_server((host, 0)) as node:
            change(written / "clients" / "client-0", "NODE_PORT", node.getsockname()[1])
            assert said in found("client-0")["Runtime API"]


@pytest.mark.parametrize(
    ("ahead", "state", "said"),
    [
        (10.2, WRONG, "is 10 s ahead of the server's, so the server refuses"),
        (4.5, WRONG, "ahead"),
        (3.0, NOTE, "is 3 s ahead"),
        (0.6, OK, "is the server's"),
        (-60.0, NOTE, "is 60 s behind"),
        (-310.0, WRONG, "is 310 s behind"),
    ],
)
def test_a_clock_that_differs(ahead, state, said):
    what, found, message = supernode_checks.clock(ahead)
    assert (what, found) == ("clock", state)
    assert said in message
