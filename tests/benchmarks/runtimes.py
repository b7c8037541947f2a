"""One federation on three runtimes: in process, Flower's simulation, a deployment on loopback.

The same configuration three times. Beliefs are compared, wall times and bytes are put side by side.
Bytes in process are those of the messages' records; in the deployment, those that a relay between
the nodes and the server passed, TLS and polling included.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tables import Table

from fedsim import client_app, server_app
from fedsim.configuration import files as configuration_files
from fedsim.configuration import to_run_config
from fedsim.deployment import kit
from fedsim.deployment import run as deployment
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.flower_command import FlowerError
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import preflight

CONFIG = Path(__file__).parents[2] / "configs" / "digits.toml"
FEDSIM = (sys.executable, "-c", "from fedsim.commands.entry import main; main()")
UP_TIMEOUT = 180.0
NOTE = (
    "Seconds. Start-up: from the command to the end of the first round, for which processes start; "
    "rounds per second: of all others. Bytes in process: of the records in all messages of a "
    "round; in the deployment: through the nodes' connections from its first round to its last, "
    "TLS and polling included. Load: processes that wanted to run, most of them somebody else's "
    "where it is above the cores. "
    "Difference: of any log-odds of any trial and round to those in process."
)


@dataclass(frozen=True)
class Size:
    """How much is run."""

    trials: int = 20
    rounds: int = 10

    @property
    def overrides(self):
        """What differs from the configuration file; one thread, as Ray gives a client."""
        return {
            "trials.count": self.trials,
            "trials.batch": self.trials,
            "training.rounds": self.rounds,
            "run.threads": 1,
            "run.device": "cpu",
        }


SMOKE = Size(4, 2)


@dataclass(frozen=True)
class Timed:
    """A finished run.

    startup: seconds to the end of the first round; rate: rounds per second from there; first, last:
    when its first round began and its last one ended, epoch;
    load: processes that wanted to run, a mean of about the last minute.
    """

    directory: RunDirectory
    command: float
    startup: float
    rate: float
    first: float
    last: float
    load: float


def measure(size):
    """Yield the three runtimes side by side."""
    config = configuration_files.load(CONFIG, size.overrides)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        inprocess = _timed(["run", str(CONFIG)], size, folder / "inprocess")
        simulated = _timed(["run", str(CONFIG), "--simulation"], size, folder / "simulation")
        with _deployed(folder / "kit", config.federation.clients) as (up, relay):
            command = ["deploy", "run", str(folder / "kit"), str(CONFIG), "--experiment"]
            deployed = _timed(command, size, folder / "deployment")
            on_wire = relay.passed(deployed.first, deployed.last) / size.rounds
        counted = _message_bytes(config, folder / "counted") / size.rounds
        beliefs = inprocess.directory.read_arrays("transcript.npz")["log_odds"]

        def row(name, run, bytes_per_round):
            found = run.directory.read_arrays("transcript.npz")["log_odds"]
            apart = float(np.abs(found - beliefs).max())
            return name, run.startup, run.rate, run.command, run.load, bytes_per_round, f"{apart:g}"

        yield Table(
            f"Runtimes: {config.federation.clients} clients, {size.rounds} rounds, "
            f"{size.trials} trials, {beliefs.size} log-odds",
            ("runtime", "start-up", "rounds/s", "command", "load", "bytes a round", "difference"),
            [
                row("in process", inprocess, counted),
                row("simulation", simulated, None),
                row("deployment", deployed, on_wire),
            ],
            f"{NOTE} The deployment was up before: its processes took {up:.0f} s to connect.",
        )


def _timed(arguments, size, out):
    """Run a fedsim command and read from its events when what happened."""
    command = [*FEDSIM, *arguments, "--quiet", "--out", str(out)]
    for key, value in size.overrides.items():
        command += [f"{key}={json.dumps(value)}"]
    begun = time.time()
    subprocess.run(command, check=True)
    ended = time.time()
    directory = RunDirectory.open(out)
    ends = {event["round"]: event["time"] for event, _ in directory.events() if "round" in event}
    (last,) = {max(ends), size.rounds}
    rate = (last - 1) / (ends[last] - ends[1])
    return Timed(
        directory=directory,
        command=ended - begun,
        startup=ends[1] - begun,
        rate=rate,
        first=ends[0],
        last=ends[last],
        load=os.getloadavg()[0],
    )


class _CountingGrid(InProcessGrid):
    """Adds up what the messages of all rounds, and their replies, hold."""

    bytes = 0

    def execute(self, message):
        reply = super().execute(message)
        if message.metadata.message_type.startswith("train"):
            self.bytes += sum(_size(one) for one in (message, reply))
        return reply


def _size(message):
    return sum(record.count_bytes() for record in message.content.values())


def _message_bytes(config, out):
    grid = _CountingGrid(client_app.app, config.federation.clients, to_run_config(config))
    server_app.carry_out(grid, preflight(config), RunDirectory.create(out, config))
    return grid.bytes


class _Relay:
    """Passes bytes between the nodes and the server, and notes when how many have passed."""

    def __init__(self, target):
        self._target = target
        self._passed: list[tuple[float, int]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def passed(self, begin, end):
        """Return how many bytes passed between two times (epoch), in both directions."""
        return sum(count for at, count in self._passed if begin <= at <= end)

    def _accept(self):
        while True:
            incoming, _ = self._listener.accept()
            outgoing = socket.create_connection(("127.0.0.1", self._target))
            for pair in ((incoming, outgoing), (outgoing, incoming)):
                threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source, target):
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
                self._passed.append((time.time(), len(data)))
            target.shutdown(socket.SHUT_WR)
        except OSError:  # the other side has gone
            source.close()
            target.close()


@contextmanager
def _deployed(directory, clients):
    """Bring up a kit on loopback; yield the seconds until all nodes were connected, and the relay.

    Everything is stopped at the end.
    """
    start = time.monotonic()
    port, superlink, *nodes = _free_ports(2 + clients)
    kit.write_kit(
        directory, "127.0.0.1", port, clients, superlink_port=superlink, listen="127.0.0.1"
    )
    relay = _Relay(port)
    for client, node_port in enumerate(nodes):
        place = kit.folder(directory, f"client-{client}")
        _replace(place / "settings.env", f"NODE_PORT={kit.NODE_PORT + client}", node_port)
        _replace(place / "settings.env", f"SUPERLINK=127.0.0.1:{port}", f"127.0.0.1:{relay.port}")
        _replace(place / "node.toml", 'consent = ""', '"adversary,central,challenge,experiment"')
        _replace(place / "node.toml", "max-trials = 1", 1000)
    server = kit.folder(directory, "server")
    try:
        _script(server, "start.sh")
        _until(lambda: bool(deployment.register(server)))
        for client in range(clients):
            _script(kit.folder(directory, f"client-{client}"), "start.sh")
        _until(lambda: list(deployment.statuses(server).values()).count("online") == clients)
        yield time.monotonic() - start, relay
    finally:
        for machine in [*kit.read_kit(directory).nodes, "server"]:
            _script(kit.folder(directory, machine), "stop.sh")


def _replace(path, line, value):
    """Give the setting on a line of a kit's file another value."""
    text = path.read_text(encoding="utf-8")
    if line not in text:
        raise ValueError(f"{path} has no {line}")
    name, equals, _ = line.partition("=")
    spaced = f"{equals} " if name.endswith(" ") else equals
    path.write_text(text.replace(line, f"{name}{spaced}{value}"), encoding="utf-8")


def _script(place, name):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    command = ["sh", str(place / name)]
    subprocess.run(command, check=True, capture_output=True, env=environment, timeout=120)


def _until(ready):
    deadline = time.monotonic() + UP_TIMEOUT
    while True:
        try:
            if ready():
                return
        except FlowerError:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            raise TimeoutError(f"the deployment was not up in {UP_TIMEOUT:g} s")
        time.sleep(1)


def _free_ports(count):
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports
