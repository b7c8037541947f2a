"""A SuperLink is reached from its own machine alone."""

import os
import sys
from pathlib import Path

import pytest

from fedsim.deployment import kit, run


def test_a_superlink_listens_on_loopback_and_is_found_beside_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit.write_kit(tmp_path / "kit", "127.0.0.1", 8443, 2, superlink_port=8001)
    became: list[list[str]] = []
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(os, "execve", lambda _, command, __: became.append(command))
    run.become_superlink(tmp_path / "kit" / "server")
    ((program, *options),) = became
    assert Path(program) == Path(sys.executable).with_name("flower-superlink")
    assert options[:4] == ["--host", "127.0.0.1", "--port", "8001"]
    assert "--enable-supernode-auth" in options
