"""Flower's simulation runtime behind one command: a private SuperLink for the time of a run.

`flwr run` alone would leave a daemon behind, install the app's dependencies on every run, and exit
with 0 when the run failed. Here the SuperLink has a directory, a port and a Flower home of its own,
the run's status decides, and everything is stopped and removed at the end.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import tomli_w

import adversaries
import fedsim
from fedsim import config as configuration
from fedsim.config import Config
from fedsim.device import resolve

PACKAGES = (fedsim, adversaries)
START_TIMEOUT = 60.0
STOP_TIMEOUT = 10.0
CONNECTION = "private"


class SimulationFailedError(RuntimeError):
    """The run ended, but not well; the message is Flower's last word on it."""


def write_app(directory: Path) -> None:
    """Write fedsim as a Flower App: both packages, and a pyproject with the default configuration.

    An installed fedsim has no pyproject.toml of its own to hand to `flwr run`.
    """
    for package in PACKAGES:
        source = Path(str(package.__file__)).parent
        shutil.copytree(
            source, directory / source.name, ignore=shutil.ignore_patterns("__pycache__")
        )
    defaults = Config().model_dump(mode="json", by_alias=True)
    project = {
        "project": {
            "name": "fedsim",
            "version": fedsim.__version__,
            "description": "fedsim as a Flower App",
            "license": "Apache-2.0",
            "dependencies": [],
        },
        "tool": {
            "flwr": {
                "app": {
                    "publisher": "fedsim",
                    "fab-include": [f"{package.__name__}/**/*.py" for package in PACKAGES],
                    "components": {
                        "serverapp": "fedsim.server_app:app",
                        "clientapp": "fedsim.client_app:app",
                    },
                    "config": defaults,
                }
            }
        },
    }
    (directory / "pyproject.toml").write_text(tomli_w.dumps(project), encoding="utf-8")


@dataclass(frozen=True)
class Simulation:
    """A run that was submitted to a private SuperLink."""

    home: Path
    run_id: str

    def status(self) -> tuple[str, str]:
        """Return Flower's status of the run and its details."""
        command = ["list", CONNECTION, "--run-id", self.run_id]
        run = _flwr(self.home, *command)["runs"][0]
        return run["status"], run.get("status-details", "")


@contextmanager
def simulation(config: Config) -> Iterator[Simulation]:
    """Start a private SuperLink, submit the run, and stop everything at the end.

    Raises SimulationFailedError when the SuperLink does not start or refuses the run.
    """
    with tempfile.TemporaryDirectory(prefix="fedsim-simulation-") as temporary:
        home = Path(temporary)
        port = _free_port()
        connection = {"address": f"127.0.0.1:{port}", "insecure": True}
        superlink = {"superlink": {"default": CONNECTION, CONNECTION: connection}}
        (home / "config.toml").write_text(tomli_w.dumps(superlink), encoding="utf-8")
        # Ray's workers import from the SuperLink's directory before they look into the app.
        empty = home / "empty"
        empty.mkdir()
        app = home / "fedsim"
        app.mkdir()
        write_app(app)
        with _superlink(home, empty, port):
            (home / "run.toml").write_text(configuration.dump(config), encoding="utf-8")
            federation = " ".join(f"{key}={value}" for key, value in resources(config).items())
            run_config = str(home / "run.toml")
            answer = _flwr(
                home,
                *["run", str(app), CONNECTION],
                *["--run-config", run_config, "--federation-config", federation],
            )
            yield Simulation(home, str(answer["run-id"]))


def resources(config: Config) -> dict[str, float]:
    """Return Flower's federation config: how many owners, and what Ray gives each of them."""
    gpus = 0.0
    if resolve(config.run.device).type == "cuda":
        gpus = config.run.client_gpus or 1.0 / config.federation.owners
    return {
        "num-supernodes": config.federation.owners,
        "client-resources-num-cpus": config.run.client_cpus,
        "client-resources-num-gpus": gpus,
        "init-args-num-cpus": os.cpu_count() or 1,
    }


@contextmanager
def _superlink(home: Path, directory: Path, port: int) -> Iterator[None]:
    address = ["--host", "127.0.0.1", "--port", str(port)]
    command = [_executable("flower-superlink"), "--insecure", "--simulation", *address]
    with (home / "superlink.log").open("w") as log:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=_environment(home),
            stdout=log,
            stderr=subprocess.STDOUT,
            # Ctrl-C is for fedsim, which then stops the SuperLink in order.
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT
        while not _listening(port):
            if process.poll() is not None or time.monotonic() > deadline:
                last = (home / "superlink.log").read_text().strip().splitlines()[-1:]
                raise SimulationFailedError(f"Flower's SuperLink did not start: {' '.join(last)}")
            time.sleep(0.1)
        yield
    finally:
        _stop(process.pid)
        process.wait()


def _stop(pid: int) -> None:
    """End a process in order, then whatever it leaves behind (the app's processes, Ray)."""
    root = psutil.Process(pid)
    family = [root, *root.children(recursive=True)]
    root.terminate()
    _, alive = psutil.wait_procs(family, timeout=STOP_TIMEOUT)
    for process in alive:
        process.kill()
    psutil.wait_procs(alive, timeout=STOP_TIMEOUT)


def _flwr(home: Path, *arguments: str) -> dict[str, Any]:
    """Run one `flwr` command; its exit status says nothing, its JSON does."""
    result = subprocess.run(
        [_executable("flwr"), *arguments, "--format", "json"],
        cwd=home,
        env=_environment(home),
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        answer = json.loads(result.stdout)
    except json.JSONDecodeError:
        raise SimulationFailedError(
            f"flwr {arguments[0]} answered {result.stdout.strip() or result.stderr.strip()!r}"
        ) from None
    if not answer.get("success"):
        raise SimulationFailedError(f"flwr {arguments[0]}: {answer.get('error-message')}")
    return dict(answer)


def _environment(home: Path) -> dict[str, str]:
    return {
        **os.environ,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_DEDUP_LOGS": "0",
        # Flower starts its helpers by name.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }


def _executable(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _listening(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
