"""A node that hardly gets a processor answers each message by one process.

A kit on loopback, TLS and authenticated nodes, two clients. Client 1 runs with NICE=19 beside a
busy loop for each core. The server only asks the nodes who they are.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import tomli_w

import fedsim
from fedsim.deployment import kit
from fedsim.deployment import run as deployment
from fedsim.federation.runtimes.flower_command import FlowerError, submit

pytestmark = [pytest.mark.flower, pytest.mark.slow]

BIN = Path(sys.executable).parent
CLIENTS, STARVED = 2, "client-1"
UP_TO = 180.0
"""Seconds until the nodes must be there."""

APP = """
import json, time
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client = ClientApp()  # no node runs it
server = ServerApp()

@server.main()
def main(grid, context):
    ahead, begun = range(context.run_config["trials.count"] // 2), time.time()
    nodes = [node for node in grid.get_node_ids() for _ in ahead]
    sent = [Message(RecordDict(), node, "query.identify") for node in nodes]
    replies = list(grid.send_and_receive(sent))
    errors = [reply.error.reason for reply in replies if reply.has_error()]
    with open(context.run_config["run.out"], "a") as file:
        said = {"errors": errors, "seconds": round(time.time() - begun, 1)}
        file.write(json.dumps(said) + chr(10))
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def script(place, name):
    subprocess.run(["sh", str(place / name)], check=False, stdout=sys.stderr)


@contextmanager
def federation(directory):
    """Run a kit's server and clients, of which one is nice."""
    kit.write_kit(
        directory,
        "127.0.0.1",
        free_port(),
        CLIENTS,
        superlink_port=free_port(),
        listen="127.0.0.1",
    )
    for index, machine in enumerate(kit.read_kit(directory).nodes):
        path = kit.folder(directory, machine) / "settings.env"
        own = path.read_text().replace(f"={kit.NODE_PORT + index}\n", f"={free_port()}\n")
        path.write_text(own.replace("NICE=0", "NICE=19") if machine == STARVED else own)
    try:
        script(directory / "server", "start.sh")
        wait_for(lambda: deployment.register(directory / "server"))
        for machine in kit.read_kit(directory).nodes:
            script(kit.folder(directory, machine), "start.sh")
        wait_for(lambda: [*deployment.statuses(directory / "server").values()] == ["online"] * 2)
        yield
    finally:
        for machine in [*kit.read_kit(directory).nodes, "server"]:
            script(kit.folder(directory, machine), "stop.sh")


def wait_for(happens):
    """Wait until a function returns something true; the SuperLink may not answer yet."""
    deadline = time.monotonic() + UP_TO
    while time.monotonic() < deadline:
        with suppress(FlowerError):
            if happens():
                return
        time.sleep(1)
    raise TimeoutError("the federation is not there")


@contextmanager
def busy_loops(nice):
    """Keep every core busy."""
    program = f"import os; os.nice({nice})\nwhile True: pass"
    command = [sys.executable, "-c", program]
    loops = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    try:
        yield loops
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def processes(node):
    """Return the processes that answer messages, which are copies of the node's process."""
    with suppress(psutil.Error):
        own = node.cmdline()
        return {child.pid for child in node.children() if child.cmdline() == own}
    return set()


def submitted(folder, ahead):
    """Submit the app; return the file in which it writes a line for its round."""
    app, server, out = folder / "app", folder / "kit" / "server", folder / "rounds.jsonl"
    app.mkdir()
    (app / "echo.py").write_text(APP)
    components = {"serverapp": "echo:server", "clientapp": "echo:client"}
    # The nodes refuse settings that fedsim does not have.
    config = {"trials": {"count": 2 * ahead}, "run": {"out": str(out)}}
    flower = {"publisher": "fedsim", "components": components, "config": config}
    # A node answers for an app of this name and version alone.
    named = {"name": fedsim.DISTRIBUTION, "version": fedsim.__version__}
    named |= {"description": "", "license": "Apache-2.0"}
    project = {"project": {**named, "dependencies": []}, "tool": {"flwr": {"app": flower}}}
    (app / "pyproject.toml").write_text(tomli_w.dumps(project))
    (folder / "run.toml").write_text(tomli_w.dumps(config))
    submit(server / "flower", kit.CONNECTION, app, folder / "run.toml")
    return out


@pytest.fixture
def starved(tmp_path, monkeypatch):
    """Return the folder of a federation that runs."""
    monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
    with federation(tmp_path / "kit"):
        yield tmp_path


def measure(folder, ahead, busy, nice, stop):
    """Return the result of a round, and the processes of the starved node: all, and at once.

    ahead: how many messages the round has for each node, sent at once.
    busy: seconds, from the starved node's first process on, in which the cores have other work.
    nice: of the other work.
    stop: what the starved node's first process is sent when it is seen; stopped until then.
    """
    place = kit.folder(folder / "kit", STARVED)
    node = psutil.Process(int((place / "supernode.pid").read_text()))
    started, most, seen_at = set[int](), 0, 300.0
    with busy_loops(nice) as loops:
        out = submitted(folder, ahead)
        begun = time.monotonic()
        while (now := time.monotonic() - begun) < 300 and not out.exists():
            if now > seen_at + busy:
                for loop in loops:
                    loop.kill()
                with suppress(ProcessLookupError):
                    os.kill(min(started), signal.SIGCONT)
            living = processes(node)
            if living and not started:
                os.kill(min(living), stop)
                seen_at = now
            started |= living
            most = max(most, len(living))
            time.sleep(0.01)  # a process lives for a fraction of a second
    log = (place / "logs" / "supernode.log").read_text()
    (said,) = out.read_text().splitlines()
    return json.loads(said), max(log.count("answers a message"), len(started)), most


def test_a_starved_node_starts_one_process_for_a_message(starved):
    # Flower takes a process for dead that has not begun within 30 seconds. This one gets no
    # processor for 40 seconds. The process that sends its heartbeats gets a share.
    seen, *processes = measure(starved, ahead=2, busy=40, nice=19, stop=signal.SIGSTOP)
    assert seen["errors"] == []
    assert seen["seconds"] > 30, "the node was not starved"
    assert processes == [2, 1]


@pytest.mark.long
def test_a_message_whose_process_was_killed_is_answered_with_an_error_at_once(starved):
    # Flower would hand the task out again, half a minute later.
    seen, started, _ = measure(starved, ahead=1, busy=10, nice=0, stop=signal.SIGKILL)
    said = "the process that computed the answer was killed by signal 9 (SIGKILL)"
    assert (seen["errors"], started) == ([said], 1)
    assert seen["seconds"] < 30
