"""A SuperLink is reached from its own machine alone, beside the program that starts its runs."""

import sys
from pathlib import Path

import pytest

from fedsim.deployment import kit, run


def test_a_superlink_listens_on_loopback_and_is_found_beside_the_interpreter(tmp_path, monkeypatch):
    class EndedError(Exception):
        pass

    def serve(parts, logs):
        commands.extend(part.command() for part in parts)
        raise EndedError

    commands = []
    kit.write_kit(tmp_path / "kit", "127.0.0.1", 8443, 2, superlink_port=8001)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(run, "Service", serve)
    with pytest.raises(EndedError):
        run.serve_superlink(tmp_path / "kit" / "server")
    (program, *options), superexec = commands
    assert Path(program) == Path(sys.executable).with_name("flower-superlink")
    assert options[:4] == ["--host", "127.0.0.1", "--port", "8001"]
    assert "--enable-supernode-auth" in options
    assert superexec[-2:] == ["--runtime-api-address", "127.0.0.1:8001"]
