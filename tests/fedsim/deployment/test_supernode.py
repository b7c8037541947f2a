"""A node's work is for its own processes: nothing that opens it is where others can read."""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from fedsim.deployment import kit, supernode


def test_a_supernode_gives_tasks_for_a_secret_of_this_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit.write_kit(tmp_path / "kit", "127.0.0.1", 8443, 2)
    place = tmp_path / "kit" / "clients" / "client-0"
    became: list[list[str]] = []
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: None)
    monkeypatch.setattr(os, "execve", lambda _, command, __: became.append(command))
    secrets = []
    for _ in range(2):
        supernode.start(place)
        (command,) = [became.pop()]
        options = dict(zip(command[3::2], command[4::2], strict=True))
        assert (options["--isolation"], "--host" in options) == ("process", False)
        secret = Path(options["--superexec-auth-secret-file"])
        assert secret.stat().st_mode & 0o077 == 0
        assert {"--ssl-certfile", "--ssl-keyfile", "--ssl-ca-certfile"} < options.keys()
        secrets.append(secret.read_bytes())
        assert not any(secret.read_bytes().hex() in part for part in command)
    assert secrets[0] != secrets[1]
    assert len(secrets[0]) == 32


@pytest.mark.parametrize(
    ("error", "ended_by"),
    [(OSError("disk full"), signal.SIGKILL), (KeyboardInterrupt(), signal.SIGTERM)],
)
def test_a_supernode_ends_with_the_process_that_starts_its_apps(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    ended_by: signal.Signals,
) -> None:
    ended: list[tuple[int, int]] = []

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(kit, "port", fail)
    monkeypatch.setattr(os, "kill", lambda *call: ended.append(call))
    with pytest.raises(type(error)):
        supernode.serve_apps(tmp_path, os.getppid(), 0)
    assert ended == [(os.getppid(), ended_by)]
    with pytest.raises(type(error)):
        supernode.serve_apps(tmp_path, os.getpid(), 0)  # another process has its number by now
    assert len(ended) == 1


def test_who_starts_the_apps_is_known_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit.write_kit(tmp_path / "kit", "127.0.0.1", 8443, 2)
    place = tmp_path / "kit" / "clients" / "client-0"
    assert not supernode.starts_apps(place)
    started: list[subprocess.Popen[bytes]] = []
    really = subprocess.Popen

    def begin(_: object, **options: Any) -> None:
        started.append(really(["sleep", "60"], **options))

    monkeypatch.setattr(subprocess, "Popen", begin)
    monkeypatch.setattr(os, "execve", lambda *_: None)
    supernode.start(place)
    (apps,) = started
    try:
        assert supernode.starts_apps(place)
        # By which the app of a run says that the server does not wait for it so long.
        while not (own := Path(f"/proc/{apps.pid}/environ").read_bytes()):
            time.sleep(0.01)  # the kernel fills it in a moment after the program began
        assert f"FEDSIM_DEADLINE={kit.deadline(place)}".encode() in own.split(b"\0")
    finally:
        apps.kill()
        apps.wait()
    assert not supernode.starts_apps(place)
