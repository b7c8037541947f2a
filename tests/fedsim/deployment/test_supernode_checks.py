"""Whether a server takes a node, and who its work, is found as it is."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from fedsim.deployment import connection_checks, supernode_checks
from fedsim.deployment.findings import NOTE, OK, WRONG

Found = Callable[[str], dict[str, str]]
Change = Callable[[Path, str, object], None]


def test_a_config_that_was_edited_while_the_node_runs(written: Path, found: Found) -> None:
    place = written / "owners" / "owner-0"
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)", f"{place}/node"]
    with subprocess.Popen(sleeper) as node:
        try:
            (place / "supernode.pid").write_text(str(node.pid))
            began = psutil.Process(node.pid).create_time()
            os.utime(place / "node.toml", (began - 5, began - 5))
            assert "node.toml" not in found("owner-0")
            os.utime(place / "node.toml", (began + 5, began + 5))
            assert "was edited after the node started" in found("owner-0")["node.toml"]
        finally:
            node.kill()


def test_a_port_that_another_program_has(
    written: Path, found: Found, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        supernode_checks, "gives_tasks_to_anybody", lambda _: None
    )  # as it is in 5 s
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(0.1)
        port = other.getsockname()[1]
        change(written / "owners" / "owner-0", "NODE_PORT", port)
        assert f"port {port} is taken" in found("owner-0")["supernode"]


def test_a_node_that_ended_by_itself_says_why(written: Path, found: Found) -> None:
    place = written / "owners" / "owner-0"
    assert "supernode" not in found("owner-0")
    (place / "supernode.pid").write_text("0\n")
    assert "has ended by itself (its log does not say why)" in found("owner-0")["supernode"]
    (place / "logs").mkdir()
    (place / "logs" / "supernode.log").write_text("[code: 2004] Failed to activate SuperNode.\n")
    assert "([code: 2004] Failed to activate SuperNode.)" in found("owner-0")["supernode"]


def test_a_runtime_api_that_is_anybodys(
    written: Path, found: Found, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        supernode_checks,
        "gives_tasks_to_anybody",
        lambda url: True if url.startswith("http:") else None,
    )
    monkeypatch.setattr(connection_checks, "process", lambda *_: 1)
    for host, said in (("127.0.0.1", "every account of this machine"), ("0.0.0.0", "on 0.0.0.0")):
        with socket.create_server((host, 0)) as node:
            change(written / "owners" / "owner-0", "NODE_PORT", node.getsockname()[1])
            assert said in found("owner-0")["Runtime API"]


@pytest.mark.parametrize(
    ("ahead", "state", "said"),
    [
        (10.2, WRONG, "is 10 s ahead of the server's, so that the server refuses"),
        (4.5, WRONG, "ahead"),
        (3.0, NOTE, "is 3 s ahead"),
        (0.6, OK, "is the server's"),
        (-60.0, NOTE, "is 60 s behind"),
        (-310.0, WRONG, "is 310 s behind"),
    ],
)
def test_a_clock_that_differs(ahead: float, state: str, said: str) -> None:
    what, found, message = supernode_checks._clock(ahead)
    assert (what, found) == ("clock", state)
    assert said in message
