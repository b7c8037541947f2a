"""Flower's simulation runtime behind one command, in a process of its own.

Everything that this process starts ends with it. Ray runs the code of every program that connects,
so here it requires a token of this run, and listens on loopback. Nothing else listens.
"""

import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import psutil
from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation

import fedsim
from adversaries.errors import InputError
from fedsim.common.device import resolve
from fedsim.configuration import Scalar
from fedsim.configuration.campaign import RunConfig
from fedsim.federation.runtimes.flower_command import FlowerError, environment

LONGEST_FOLDER = 19
"""Longest path of the temporary folder that leaves Ray the 84 characters for its sockets."""

PROGRAM = "import sys; from fedsim import experiment; experiment.simulate(*sys.argv[1:])"
"""What the process runs, with the run directory and a file for why it failed."""

STOP_TIMEOUT = 10.0
"""Seconds in which a process must end after SIGTERM."""

HOME = "FLWR_HOME"
"""Variable by which the processes of one simulation are told from others."""


def require_ray() -> None:
    """Raise InputError if Ray is not installed, which only simulations need."""
    if find_spec("ray") is None:
        raise InputError(
            "--simulation needs Ray, which is not installed; "
            f'pip install "flwr[simulation]=={version("flwr")}"'
        )


def in_own_process(directory: Path) -> None:
    """Carry out the run of a directory on Flower's simulation runtime.

    Raises FlowerError if it failed, with its reason.
    """
    # Ray puts sockets into the run's temporary folder, and their paths must be short.
    folder = None if len(tempfile.gettempdir()) <= LONGEST_FOLDER else "/tmp"
    with tempfile.TemporaryDirectory(prefix="fedsim-", dir=folder) as temporary:
        home = Path(temporary)
        log, failure = home / "log", home / "failure"
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(directory), str(failure)],
                cwd=home,
                env=environment(home) | _ray(home),
                stdout=output,
                stderr=subprocess.STDOUT,
                # fedsim handles Ctrl-C, and then stops the process in order.
                start_new_session=True,
            )
        try:
            if (status := process.wait()) < 0:
                raise FlowerError(
                    f"Flower's simulation was killed (signal {-status}), perhaps for its memory; "
                    "the same command continues"
                )
            if status:
                written = (failure if failure.exists() else log).read_text(errors="replace")
                lines = written.strip().splitlines()
                raise FlowerError(" ".join(lines[-1:]) or "Flower's simulation ended by itself")
        finally:
            stop(process, home)


@dataclass(frozen=True)
class Configured:
    """An app of Flower with its run config, which `run_simulation` does not take."""

    app: ServerApp | ClientApp
    run_config: dict[str, Scalar]

    def __call__(self, context: Context, **arguments: Any) -> Any:
        """Call the app with Flower's arguments, by their names."""
        # The state is Flower's own, which keeps it.
        node, state = context.node_config, context.state
        own = Context(context.run_id, context.node_id, node, state, dict(self.run_config))
        return self.app(context=own, **arguments)


def play(
    server: ServerApp, client: ClientApp, clients: int, run: RunConfig, values: dict[str, Scalar]
) -> None:
    """Run both apps on Flower's simulation runtime, in this process. Raises the server's error.

    values: the whole configuration, as Flower's run config.
    """
    run_simulation(
        cast(ServerApp, Configured(server, values)),
        cast(ClientApp, Configured(client, values)),
        clients,
        backend_config=resources(run, clients),
    )


def resources(run: RunConfig, clients: int) -> dict[str, Any]:
    """Return each client's share of Ray: a core, and of a GPU as much as every other client."""
    on_gpu = resolve(run.device).type == "cuda"
    return {
        "client_resources": {"num_cpus": 1, "num_gpus": 1.0 / clients if on_gpu else 0.0},
        "init_args": {"num_cpus": os.cpu_count() or 1},
    }


def _ray(home: Path) -> dict[str, str]:
    """Return the environment of a quiet Ray for this run only, with authentication."""
    package = str(Path(str(fedsim.__file__)).parents[1])
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")])),
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


def stop(process: subprocess.Popen[bytes], home: Path) -> None:
    """End a simulation in order, then by force what it has left behind (Ray's processes)."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_TIMEOUT)
    left = list(_of(home))
    for each in left:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(left, timeout=STOP_TIMEOUT)
    process.wait()


def _of(home: Path) -> Iterator[psutil.Process]:
    """Yield the living processes of a simulation; Flower's home is theirs alone."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it has ended, or is another user's
            if process.environ().get(HOME) == str(home):
                yield process
