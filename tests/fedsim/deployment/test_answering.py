"""A node has one process for a message, keeps its claim while it lives, and ends it in the end."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

import httpx
import pytest

from adversaries.errors import InputError
from fedsim.config.federation import FederationConfig
from fedsim.deployment import kit, own_app, supernode
from fedsim.deployment.supernode import Answering

PYTHON = sys.executable
SLEEPS = "import time; time.sleep(600)"


class Process(subprocess.Popen[bytes]):
    """A program as a process of a message."""

    @property
    def exitcode(self) -> int | None:
        return self.poll()


Begin = Callable[..., Process]


class Runtime:
    """A SuperNode with one task, which it hands out again as soon as its claim is not kept."""

    def __init__(self, claimed: bool = True, error: httpx.HTTPError | None = None) -> None:
        self.claimed = claimed
        self.error = error
        self.kept = 0
        self.failed: list[str] = []

    def __call__(self, *_: object) -> "Runtime":
        return self

    def __enter__(self) -> "Runtime":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def task(self) -> str:
        return "token"

    def keep(self, token: str) -> bool:
        assert token == "token"
        self.kept += 1
        if self.error:
            raise self.error
        return self.claimed

    def fail(self, token: str, reason: str) -> None:
        assert token == "token"
        self.failed.append(reason)


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Return a function that begins a program in a process group of its own."""
    begun: list[Process] = []

    def begin(program: str, *arguments: object) -> Process:
        command = [PYTHON, "-c", program, *map(str, arguments)]
        begun.append(Process(command, process_group=0, stdout=subprocess.PIPE))
        return begun[-1]

    yield begin
    for process in begun:
        with process, suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _end(one: Answering, runtime: Runtime) -> None:
    deadline = time.monotonic() + 30
    while one.goes_on(runtime):
        assert time.monotonic() < deadline
        time.sleep(0.02)


# The child inherits the open file, and the lock with it, and ignores its parent's end.
FORKS = """
import fcntl, os, signal, sys, time
held = open(sys.argv[1], "w")
fcntl.flock(held, fcntl.LOCK_EX)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.fork()
os.write(1, b"ready" + bytes([10]))
time.sleep(600)
"""


def _is_free(path: Path) -> bool:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.mark.parametrize("ends_by", ["its deadline", "itself"])
def test_a_process_takes_along_what_it_forked(tmp_path: Path, begin: Begin, ends_by: str) -> None:
    lock, runtime = tmp_path / "lock", Runtime()
    process = begin(FORKS, lock)
    assert process.stdout is not None
    for _ in range(2):
        assert process.stdout.readline() == b"ready\n"
    one = Answering(process, "token", 0.2 if ends_by == "its deadline" else 60)
    if ends_by == "itself":
        os.kill(process.pid, signal.SIGKILL)  # for want of memory, say
    _end(one, runtime)
    deadline = time.monotonic() + 10
    while not _is_free(lock):
        assert time.monotonic() < deadline, "a forked child lives and holds the lock"
        time.sleep(0.02)
    (reason,) = runtime.failed
    assert ("DEADLINE" in reason) is (ends_by == "its deadline")


def test_a_process_that_answered_leaves_its_message_alone(begin: Begin) -> None:
    runtime = Runtime()
    _end(Answering(begin(""), "token", 60), runtime)
    assert runtime.failed == []


def test_a_process_whose_claim_is_gone_has_a_little_time_to_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, begin: Begin
) -> None:
    monkeypatch.setattr(supernode, "GRACE", 0.3)
    runtime = Runtime(claimed=False)
    _end(Answering(begin(SLEEPS), "token", 600), runtime)
    assert runtime.kept == 1
    assert "is killed" in caplog.text


@pytest.mark.parametrize("error", [None, httpx.ConnectError("nobody listens")])
def test_the_log_says_how_long_a_process_is_busy_whatever_the_supernode_answers(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    begin: Begin,
    error: httpx.HTTPError | None,
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    runtime = Runtime(error=error)
    one = Answering(begin(SLEEPS), "token", 3600)
    try:
        for _ in range(500):
            now += 1
            assert one.goes_on(runtime)
    finally:
        one.kill()
    said = [record.getMessage() for record in caplog.records if "has been" in record.getMessage()]
    assert [line.split(" for ")[1] for line in said] == ["61 s", "123 s", "247 s", "495 s"]
    assert 45 <= runtime.kept <= 50  # every ten seconds, not at every look


@pytest.mark.parametrize("stopped", [False, True])
def test_a_message_is_not_begun_twice_while_its_process_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: Begin, stopped: bool
) -> None:
    kit.write_kit(tmp_path / "kit", "127.0.0.1", 8443, 2)
    place = tmp_path / "kit" / "clients" / "client-0"
    kit.write_file(place / "state" / "runtime" / "ca", b"")
    kit.write_file(place / "state" / "runtime" / "secret", b"")
    started: list[Process] = []

    def begin_process(*_: object) -> Process:
        started.append(begin(SLEEPS))
        return started[-1]

    looks = iter(range(40))

    def parent() -> int:
        if next(looks, None) is not None:
            return 77
        if stopped:
            signal.raise_signal(signal.SIGTERM)
        return 1  # the SuperNode has ended

    monkeypatch.setattr(supernode, "RuntimeApi", Runtime())
    monkeypatch.setattr(own_app, "begin", begin_process)
    monkeypatch.setattr(own_app, "import_ahead", lambda: None)
    monkeypatch.setattr(supernode, "pause", lambda *_: 0.01)
    monkeypatch.setattr(os, "getppid", parent)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) if stopped else nullcontext():
            supernode.serve_apps(place, 77, 0)
    finally:
        signal.signal(signal.SIGTERM, before)
    (process,) = started
    assert process.wait(10) == -signal.SIGKILL  # nothing is left, whichever of the two has ended


@pytest.mark.parametrize("value", ["soon", "0", "-3", "inf", "nan", ""])
def test_a_deadline_that_is_none_is_refused(tmp_path: Path, value: str) -> None:
    (tmp_path / "settings.env").write_text(f"DEADLINE={value}\n")
    with pytest.raises(InputError, match=r"DEADLINE is .*give seconds"):
        kit.deadline(tmp_path)


def test_a_node_of_an_older_kit_has_the_deadline_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "settings.env").write_text("NODE_PORT=9094\n")
    assert kit.deadline(tmp_path) == FederationConfig().timeout
