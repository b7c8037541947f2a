"""Flower's simulation runtime behind one command: a private SuperLink for one run.

`flwr run` alone would leave a daemon behind, install the app's dependencies on every run, and exit
with 0 after a failed run. Here the SuperLink has its own directory, port and Flower home, the run's
status decides the exit, and everything is stopped and removed at the end.

By default neither Flower nor Ray authenticates, and both run the code of every program that
connects. So the SuperLink answers only this command's processes (`private_superlink`), Ray requires
a token of this run, and both listen on loopback.
"""

import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import psutil
import tomli_w

from adversaries.errors import InputError
from fedsim.common.device import resolve
from fedsim.configuration.campaign import RunConfig
from fedsim.federation.runtimes import ports
from fedsim.federation.runtimes.flower_command import (
    FlowerError,
    Submission,
    environment,
    submit,
    write_app,
)

LONGEST_FOLDER = 19
"""Longest path of the temporary folder that leaves Ray the 84 characters for its sockets."""

SUPERLINK = "fedsim.federation.runtimes.private_superlink"
"""The module to start, which imports all of Flower's SuperLink."""

START_TIMEOUT = 60.0
STOP_TIMEOUT = 10.0
CONNECTION = "private"


def require_ray() -> None:
    """Raise InputError if Ray is not installed, which only simulations need."""
    if find_spec("ray") is None:
        raise InputError(
            "--simulation needs Ray, which is not installed; "
            f'pip install "flwr[simulation]=={version("flwr")}"'
        )


@contextmanager
def simulation(run_config: str, run: RunConfig, clients: int) -> Iterator[Submission]:
    """Start a private SuperLink, submit the run, and stop everything at the end.

    run_config: the run's whole configuration, as TOML.

    Raises FlowerError if the SuperLink does not start or refuses the run.
    Yields: the run.
    """
    # Ray puts sockets into the run's temporary folder, and their paths must be short.
    folder = None if len(tempfile.gettempdir()) <= LONGEST_FOLDER else "/tmp"
    with (
        tempfile.TemporaryDirectory(prefix="fedsim-", dir=folder) as temporary,
        socket.socket() as bound,
    ):
        home = Path(temporary)
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        connection = {"address": f"127.0.0.1:{port}", "insecure": True}
        superlink = {"superlink": {"default": CONNECTION, CONNECTION: connection}}
        (home / "config.toml").write_text(tomli_w.dumps(superlink), encoding="utf-8")
        # Ray's workers import from the SuperLink's directory before they import from the app.
        empty = home / "empty"
        empty.mkdir()
        app = home / "fedsim"
        app.mkdir()
        write_app(app)
        with _superlink(home, empty, bound):
            (home / "run.toml").write_text(run_config, encoding="utf-8")
            federation = " ".join(
                f"{key}={value}" for key, value in resources(run, clients).items()
            )
            yield submit(
                home, CONNECTION, app, home / "run.toml", "--federation-config", federation
            )


def resources(run: RunConfig, clients: int) -> dict[str, float]:
    """Return Flower's federation config: the number of clients, and each client's share of Ray."""
    on_gpu = resolve(run.device).type == "cuda"
    return {
        "num-supernodes": clients,
        "client-resources-num-cpus": 1,
        "client-resources-num-gpus": 1.0 / clients if on_gpu else 0.0,
        "init-args-num-cpus": os.cpu_count() or 1,
    }


def _ray(home: Path) -> dict[str, str]:
    """Return the environment of a quiet Ray for this run only, with authentication."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        # This keeps Ray on loopback: a node that never joins a cluster.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        # Do not join another cluster of this user.
        "RAY_ADDRESS": "local",
        # In Ray's default folder, every user could replace its files.
        "RAY_TMPDIR": str(home),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_DEDUP_LOGS": "0",
    }


@contextmanager
def _superlink(home: Path, directory: Path, bound: socket.socket) -> Iterator[None]:
    host, port = bound.getsockname()
    command = [sys.executable, "-m", SUPERLINK, str(bound.fileno()), str(os.getpid())]
    command += ["--insecure", "--simulation", "--host", host, "--port", str(port)]
    with (home / "superlink.log").open("w") as log:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=environment(home) | _ray(home),
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=[bound.fileno()],
            # fedsim handles Ctrl-C, and then stops the SuperLink in order.
            start_new_session=True,
        )
    bound.close()  # else the port would stay open after the SuperLink has ended
    try:
        deadline = time.monotonic() + START_TIMEOUT
        while not ports.listening("127.0.0.1", port, 1.0):
            if process.poll() is not None or time.monotonic() > deadline:
                last = (home / "superlink.log").read_text().strip().splitlines()[-1:]
                raise FlowerError(f"Flower's SuperLink did not start: {' '.join(last)}")
            time.sleep(0.1)
        yield
    finally:
        stop(process.pid)
        process.wait()


def stop(pid: int) -> None:
    """End a process in order, then its remaining children (the app's processes, Ray)."""
    family = []
    # A process that ends by itself in the meantime is no error.
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
        root.terminate()
    _, alive = psutil.wait_procs(family, timeout=STOP_TIMEOUT)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=STOP_TIMEOUT)
