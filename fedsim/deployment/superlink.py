"""The SuperLink of a server's machine, on loopback, since all that reach it can submit code."""

import logging
import os
from importlib.metadata import version
from pathlib import Path

import fedsim
from fedsim.deployment import kit, logs
from fedsim.federation.runtimes.flower_command import environment, executable

log = logging.getLogger(__name__)

POLL_INTERVAL = "0.5"
"""Seconds between two requests of Flower's process starter for a task."""


def start(place: Path) -> None:
    """Become the SuperLink of the server's folder.

    Raises InputError for unreadable settings, FlowerError if Flower is not installed.
    """
    program = executable("flower-superlink")
    command = [program, "--host", "127.0.0.1", "--port", f"{kit.port(place, 'SUPERLINK_PORT')}"]
    command += ["--ssl-ca-certfile", f"{place / 'superlink-ca.crt'}"]
    command += ["--ssl-certfile", f"{place / 'superlink.crt'}"]
    command += ["--ssl-keyfile", f"{place / 'superlink.key'}"]
    command += ["--enable-supernode-auth", "--disable-runtime-dependency-installation"]
    command += ["--database", f"{place / 'state' / 'superlink.db'}"]
    own = environment(place / "flower") | {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": POLL_INTERVAL}
    logs.begin("server")
    log.info("superlink begins: fedsim %s, flwr %s", fedsim.__version__, version("flwr"))
    os.execve(program, command, own)
