"""A node's work is for its own processes: nothing that opens it is where others can read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedsim.deployment import kit, supernode


def test_a_tasks_token_is_on_no_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = tmp_path / "flwr-clientapp"
    app.write_text(
        f"#!{sys.executable}\nimport pathlib, sys\n"
        "token = pathlib.Path(sys.argv[sys.argv.index('--token-file') + 1])\n"
        f"pathlib.Path('{tmp_path}/seen').write_text(token.read_text() + ' '.join(sys.argv))\n"
    )
    app.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert supernode._start_app("127.0.0.1:9094", tmp_path / "ca", "a-token").wait(30) == 0
    seen = (tmp_path / "seen").read_text()
    assert seen.startswith("a-token")
    assert seen.count("a-token") == 1


def test_a_supernode_gives_tasks_for_a_secret_of_this_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit.write(tmp_path / "kit", "127.0.0.1", 8443, 2)
    place = tmp_path / "kit" / "owners" / "owner-0"
    became: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda _: None)
    monkeypatch.setattr(os, "execvp", lambda _, command: became.append(command))
    secrets = []
    for _ in range(2):
        supernode.start(place)
        (command,) = [became.pop()]
        options = dict(zip(command[1::2], command[2::2], strict=True))
        assert (options["--isolation"], "--host" in options) == ("process", False)
        secret = Path(options["--superexec-auth-secret-file"])
        assert secret.stat().st_mode & 0o077 == 0
        assert {"--ssl-certfile", "--ssl-keyfile", "--ssl-ca-certfile"} < options.keys()
        secrets.append(secret.read_bytes())
        assert not any(secret.read_bytes().hex() in part for part in command)
    assert secrets[0] != secrets[1]
    assert len(secrets[0]) == 32
