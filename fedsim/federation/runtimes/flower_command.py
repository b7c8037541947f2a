"""Flower's `flwr` command as a library: its environment, its true status, fedsim as its app.

`flwr` exits with 0 even after a failure. Its JSON has the failure, and the list of runs has the end
of a run.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

import adversaries
import fedsim
from fedsim import configuration

PACKAGES = (fedsim, adversaries)

SHIPPED = (
    "adversaries/**/*.py",
    "fedsim/__init__.py",
    "fedsim/client_app.py",
    "fedsim/server_app.py",
    *(
        f"fedsim/{wing}/**/*.py"
        for wing in ("common", "privacy", "configuration", "learning", "game")
    ),
    "fedsim/federation/__init__.py",
    *(
        f"fedsim/federation/{room}/**/*.py"
        for room in ("runs", "protocol", "client", "transcripts", "server")
    ),
    "fedsim/audits/__init__.py",
    "fedsim/auditor_app.py",
    *(f"fedsim/audits/{room}/**/*.py" for room in ("results", "measurements", "judgement", "run")),
    "fedsim/reports/*.py",
    *(f"fedsim/reports/{room}/**/*.py" for room in ("figures", "document", "sections")),
)
"""Files that a client, a server and an auditor's node run, without other parts of fedsim."""
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 20.0
"""Seconds between two requests for a run's status. Each starts a process of two seconds."""

GLANCE = 0.5
"""Seconds between two looks whether a run has ended by itself."""

PATIENCE = 10.0
"""Seconds in which a SuperLink begins a run, before a message says that it has not."""

COMPLETED = "finished:completed"

WITHOUT_REASON = (
    "Task failed with unknown error.",
    "Task stopped by user.",
    "No heartbeat received from the task",
)
"""Flower's details of a run whose process ended with flower-superexec or the SuperLink."""

LOST = (
    "the run's process on the server ended before the run; the log of the SuperLink says why, and "
    "the same command goes on after the last finished round"
)

UNREACHABLE = "Connection to the SuperLink is unavailable"
"""Flower's complaint that no SuperLink answers."""


class FlowerError(RuntimeError):
    """A command of Flower failed; the text is Flower's last message."""


class ProcessEndedError(FlowerError):
    """The run's process on the server ended before the run."""


@dataclass(frozen=True)
class Submission:
    """A run that was submitted to a SuperLink.

    Attributes:
        home: the Flower home with the connection.
        connection: the SuperLink's name in that home.
        run_id: Flower's number of the run.
    """

    home: Path
    connection: str
    run_id: str

    def status(self) -> tuple[str, str]:
        """Return Flower's status of the run, and why it failed, in one line."""
        run = flwr(self.home, "list", self.connection, "--run-id", self.run_id)["runs"][0]
        details = str(run.get("status-details", ""))
        details = LOST if details in WITHOUT_REASON else details
        reason = re.sub(r"^\w+ failed with exception: ", "", details)
        return run["status"], " ".join(reason.split())

    def wait(self, ended: Callable[[], bool], say: Callable[[str], None]) -> None:
        """Wait for the end of the run. The pauses between requests grow.

        ended: returns whether the run has written its last file.
        say: shows a line to the user.
        Raises ProcessEndedError if its process on the server was killed.
        Raises FlowerError if the run failed or was stopped, or the SuperLink is lost.
        """
        begun, said, pause = time.monotonic(), False, FIRST_PAUSE
        while not (status := self.status())[0].startswith("finished"):
            if status[0] != "running" and time.monotonic() > begun + PATIENCE and not said:
                say(f"the run is {status[0]}; fedsim deploy status says what does not answer")
                said = True
            until = time.monotonic() + pause
            while time.monotonic() < until and not (pause > FIRST_PAUSE and ended()):
                time.sleep(GLANCE)
            pause = FIRST_PAUSE if ended() else min(1.5 * pause, LONGEST_PAUSE)
        if status[0] == "finished:stopped":
            raise FlowerError("the run was stopped; the command that began it continues it")
        if status[1] == LOST:
            raise ProcessEndedError(LOST)
        if status[0] != COMPLETED:
            raise FlowerError(status[1] or f"the run ended with the status {status[0]}")

    def stop(self) -> None:
        flwr(self.home, "stop", self.run_id, self.connection)


def submit(home: Path, connection: str, app: Path, run_config: Path) -> Submission:
    """Submit a run and return the submission.

    connection: the SuperLink's name in the Flower home.
    Raises FlowerError if the SuperLink refuses it.
    """
    answer = flwr(home, "run", str(app), connection, "--run-config", str(run_config))
    return Submission(home, connection, str(answer["run-id"]))


def flwr(home: Path, *arguments: str) -> dict[str, Any]:
    """Return the JSON of one `flwr` command. Raises FlowerError if it failed."""
    result = subprocess.run(
        [executable("flwr"), *arguments, "--format", "json"],
        cwd=home,
        env=environment(home),
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        answer = json.loads(result.stdout)
    except json.JSONDecodeError:
        raise FlowerError(
            f"flwr {arguments[0]} answered {result.stdout.strip() or result.stderr.strip()!r}"
        ) from None
    if UNREACHABLE in str(answer.get("error-message")):
        raise FlowerError(
            "the SuperLink does not answer; start it again if it has ended (fedsim deploy status "
            "says so), and give the same command again"
        )
    if not answer.get("success"):
        raise FlowerError(f"flwr {arguments[0]}: {answer.get('error-message')}")
    return dict(answer)


def listening(host: str, port: int, timeout: float = 5.0) -> bool:
    """Return whether a program accepts a connection on a port within some seconds."""
    try:
        with socket.create_connection((host, port), timeout=timeout):
            return True
    except OSError:
        return False


def environment(home: Path) -> dict[str, str]:
    """Return the environment of Flower's processes: quiet, offline, with a separate home."""
    return {
        **os.environ,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        # Flower starts its helpers by name.
        "PATH": _search_path(),
    }


def executable(name: str) -> str:
    """Return the path of a command, beside this Python or on the PATH.

    Raises FlowerError if it is missing.
    """
    path = shutil.which(name, path=_search_path())
    if path is None:
        raise FlowerError(
            f"Flower's command {name} is neither beside {sys.executable} nor on the PATH; install "
            "flwr into the environment of fedsim"
        )
    return path


def _search_path() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


def write_app(directory: Path) -> None:
    """Write fedsim as a Flower App: both packages, and a pyproject with the default configuration.

    An installed fedsim has no pyproject.toml for `flwr run`.
    """
    for package in PACKAGES:
        source = Path(str(package.__file__)).parent
        shutil.copytree(
            source, directory / source.name, ignore=shutil.ignore_patterns("__pycache__")
        )
    project = {
        "project": {
            "name": fedsim.DISTRIBUTION,
            "version": fedsim.__version__,
            "description": "fedsim as a Flower App",
            "license": "Apache-2.0",
            "dependencies": [],
        },
        "tool": {
            "flwr": {
                "app": {
                    "publisher": "fedsim",
                    "fab-include": list(SHIPPED),
                    "components": {
                        "serverapp": "fedsim.server_app:app",
                        "clientapp": "fedsim.client_app:app",
                    },
                    "config": configuration.declared(),
                }
            }
        },
    }
    (directory / "pyproject.toml").write_text(tomli_w.dumps(project), encoding="utf-8")
