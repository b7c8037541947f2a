"""A deployment in which one process is killed: what is said, and that nothing is lost."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import test_starved_node as starved_node

from fedsim.deployment import kit

pytestmark = [pytest.mark.flower, pytest.mark.slow, pytest.mark.long]

T = TypeVar("T")
ROUNDS = 6


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The server's folder of a kit with two clients, which are connected."""
    directory = tmp_path_factory.mktemp("killed") / "kit"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("COLUMNS", "500")
        with starved_node.federation(directory):
            yield directory / "server"


def _until(find, seconds):
    deadline = time.monotonic() + seconds
    while not (found := find()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def _deploy(command, place):
    words = ["fedsim", "deploy", command, str(place)]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def _children(place, service):
    number = int((place / f"{service}.pid").read_text())
    return psutil.Process(number).children() if psutil.pid_exists(number) else []


def _named(place, service, word):
    found = (each for each in _children(place, service) if word in " ".join(each.cmdline()))
    return next(found)


def _trained(server, out, during=lambda _: None):
    """Train in the server's folder while something is done; return what the training said."""
    values = {"federation.clients": 2, "training.rounds": ROUNDS, "privacy.rho-beta": 0.7}
    values |= {"privacy.stop-at": 0.9}
    settings = [f"{key}={value}" for key, value in values.items()]
    command = ["fedsim", "deploy", "train", ".", "deployment.toml", "--out", out, *settings]
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(command, cwd=server, stdout=pipe, stderr=both, text=True) as process:
        try:
            during(server / out)
            said, _ = process.communicate(timeout=900)
        finally:
            process.kill()
    assert process.returncode == 0, said
    return said


def test_the_program_that_starts_runs_starts_again_and_the_next_run_begins(server):
    superlink = _named(server, "superlink", "flower-superlink")
    superexec = _named(server, "superlink", "flower-superexec")
    superexec.kill()
    _until(lambda: not superexec.is_running(), 5)
    _until(lambda: len(_children(server, "superlink")) == 2, 30)
    assert superlink.is_running()  # so that the clients stay connected
    log = (server / "logs" / "superlink.log").read_text()
    assert "flower-superexec was killed by signal 9 (SIGKILL); it starts again in 5 s" in log
    _trained(server, "superexec")


@pytest.mark.parametrize("killed", ["the node", "its SuperNode alone"])
def test_a_node_that_was_killed_is_connected_again_within_a_minute_or_two(server, killed):
    place = server.parent / "clients" / "client-0"
    log = place / "logs" / "supernode.log"
    connected = log.read_text().count("SuperNode ID")
    if killed == "the node":
        os.kill(int((place / "supernode.pid").read_text()), signal.SIGKILL)
        _until(lambda: not _children(place, "supernode"), 20)
    else:
        _named(place, "supernode", "mended_supernode").kill()
        _until(lambda: "still counts an earlier start" in log.read_text(), 30)
    starved_node.script(place, "start.sh")
    _until(lambda: log.read_text().count("SuperNode ID") > connected, 150)
    _until(lambda: _deploy("status", server).count(": connected") == 2, 60)
    assert "wrong" not in _deploy("check", place)


def test_a_kit_is_as_it_was(server):
    for machine in kit.read_kit(server.parent).machines:
        found = _deploy("check", kit.folder(server.parent, machine))
        assert " wrong " not in found
