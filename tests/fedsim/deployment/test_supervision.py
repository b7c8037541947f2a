"""A service's parent sees every process that ends, starts it again, and takes all along."""

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import psutil
import pytest

from fedsim.deployment import supervision

SERVICE = """
import sys, time
from pathlib import Path
from fedsim.deployment import supervision
supervision.PAUSE = 0.2
def part(name, word):
    program = [sys.executable, "-c", "import time; time.sleep(600)", word]
    return supervision.Part(name, lambda: program, None)
parts = [part("the SuperLink", "flower-superlink"), part("flower-superexec", "flower-superexec")]
with supervision.Service(parts, Path()) as service:
    while True:
        service.watch()
        time.sleep(0.02)
"""


T = TypeVar("T")


def _until(find, seconds=20):
    deadline = time.monotonic() + seconds
    while not (found := find()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def _lives(process):
    """Return whether a process runs: an ended one may wait until the system's first reaps it."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Running:
    """A service of two parts in a process of its own, in the form of `fedsim deploy superlink`."""

    def __init__(self, place):
        command = [sys.executable, "-c", SERVICE, "deploy", "superlink", f"{place}/"]
        self.place = place
        self.log = (place / "log").open("w+")
        self.process = subprocess.Popen(command, stderr=self.log)
        self.seen = self.parts()

    def parts(self):
        parent = psutil.Process(self.process.pid)
        return _until(lambda: len(found := parent.children()) == 2 and found)

    def said(self):
        return (self.place / "log").read_text().splitlines()


@pytest.fixture
def running(tmp_path):
    service = Running(tmp_path)
    yield service
    with service.process, service.log:
        service.process.kill()
    _until(lambda: not any(map(_lives, service.seen)))


@pytest.mark.parametrize(("killed", "again"), [(0, 2), (1, 1)])
def test_a_part_that_is_killed_starts_again_with_those_after_it(running, killed, again):
    running.seen[killed].kill()
    name = ["the SuperLink", "flower-superexec"][killed]
    _until(running.said)
    before, running.seen = running.seen, running.parts()
    assert len({*running.seen} - {*before}) == again
    assert running.said() == [f"{name} was killed by signal 9 (SIGKILL); it starts again in 0.2 s"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_parts_end_with_their_parent(running, number):
    running.process.send_signal(number)
    assert running.process.wait(20) == (0 if number == signal.SIGTERM else -9)
    _until(lambda: not any(map(_lives, running.seen)))


def test_a_part_that_cannot_start_is_tried_again_and_long_logs_are_copied_away(
    monkeypatch, caplog, tmp_path
):
    for name, value in (("PAUSE", 0.0), ("LOGS_INTERVAL", 0.0), ("LARGEST", 10)):
        monkeypatch.setattr(supervision, name, value)
    (tmp_path / "proxy.log").write_text("a long log\n")
    (tmp_path / "proxy.log.1").mkdir()
    writer = (tmp_path / "supernode.log").open("a")
    print("a long log", file=writer, flush=True)
    commands = iter([["/nowhere/program"], [sys.executable, "-c", "import time; time.sleep(600)"]])
    handler = signal.getsignal(signal.SIGTERM)
    try:
        parts = [supervision.Part("the SuperNode", lambda: next(commands), os.environ)]
        with supervision.Service(parts, tmp_path) as service, writer:
            assert not service.watch()
            print("more", file=writer)
            assert service.watch()
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert "the SuperNode cannot start ([Errno 2] No such file" in caplog.text
    assert "cannot shorten proxy.log" in caplog.text
    texts = [path.read_text() for path in sorted(tmp_path.iterdir()) if path.is_file()]
    assert texts == ["a long log\n", "more\n", "a long log\n"]


def test_a_line_tells_when_where_how_grave_and_what(capfd):
    program = (
        "import logging; from fedsim.deployment.supervision import log_as; log_as('client-0')\n"
        "logging.getLogger('fedsim.deployment').info('begins')\n"
        "try: 1 / 0\n"
        "except ZeroDivisionError: logging.exception('it failed')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    begins, failed = capfd.readouterr().err.splitlines()
    moment, *others = begins.split()
    assert others == ["client-0", "INFO", "begins"]
    assert abs(datetime.fromisoformat(moment) - datetime.now(UTC)) < timedelta(minutes=1)
    assert "ERROR it failed | Traceback" in failed
