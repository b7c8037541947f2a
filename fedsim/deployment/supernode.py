"""A SuperNode that hands its work to its own processes alone, and to no other account.

By itself Flower's SuperNode gives each task, on loopback, to whoever asks first: the run's
configuration, the model, and the right to answer for the node; and it starts the process of a task
with its token on the command line, which every account can read. Here a task is given for a secret,
over TLS with a key, which are both of this start, and its token is in a file without a name.

A node has one process at a time: Flower's SuperNode takes the next message when it has sent the
answer to the last one.
"""

import fcntl
import logging
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import httpx

import fedsim
from fedsim.common.waiting import pause
from fedsim.deployment import certificates, kit, logs, upkeep
from fedsim.deployment.answering import Answering
from fedsim.federation.protocol import node_machine
from fedsim.federation.runtimes.flower_command import environment, executable
from fedsim.federation.runtimes.flower_services import Runtime

log = logging.getLogger(__name__)

SUPERNODE = "fedsim.federation.runtimes.mended_supernode"
"""The module that becomes Flower's SuperNode. This process needs nothing of it."""

APP = "flwr-clientapp"
"""Flower's program of a task's process."""

CERTIFICATE_DAYS = 3650
"""Longer than a node runs."""

POLL_INTERVAL = 0.1
"""Seconds between two questions for a task soon after the last one; an idle node asks rarely."""

LOGS_INTERVAL = 60.0
"""Seconds between two looks at the length of the log."""


def start(place: Path) -> None:
    """Become the SuperNode of a machine's folder, beside a process that starts its apps.

    Raises InputError for settings that cannot be read, FlowerError if Flower is not installed.
    """
    executable(APP)
    logs.begin(kit.read(place).machine)
    settings, port = kit.settings(place), kit.port(place, "NODE_PORT")
    if upkeep.take_up(place, settings.get("SUPERLINK", "")):
        log.info("has a new key from now on")
    pair, trusted = certificates.loopback(CERTIFICATE_DAYS)
    runtime = place / "state" / "runtime"
    contents = {
        "secret": secrets.token_bytes(32),
        "key": pair.private,
        "crt": pair.public,
        "ca": trusted,
    }
    for name, content in contents.items():
        kit.write_file(runtime / name, content)
    beside = [sys.executable, "-m", "fedsim", "deploy", "apps", f"{place}/", str(os.getpid())]
    own = environment(place / "flower") | {
        node_machine.VERSION: fedsim.__version__,
        node_machine.DEADLINE: f"{kit.deadline(place)}",
    }
    with (runtime / "secret").open("rb") as held:
        # From now on the other process has the lock, to its end: `starts_apps` asks for it.
        fcntl.flock(held, fcntl.LOCK_EX)
        subprocess.Popen(beside, env=own, pass_fds=[held.fileno()])
    log.info("supernode begins: fedsim %s, flwr %s", fedsim.__version__, version("flwr"))
    command = [sys.executable, "-m", SUPERNODE]
    command += ["--superlink", settings.get("SUPERLINK", "")]
    command += ["--root-certificates", f"{place / 'ca.crt'}"]
    command += ["--auth-supernode-private-key", f"{place / 'node.key'}"]
    command += ["--node-config", f"{place / 'node.toml'}", "--port", f"{port}"]
    command += ["--isolation", "process", "--superexec-auth-secret-file", f"{runtime / 'secret'}"]
    command += ["--ssl-keyfile", f"{runtime / 'key'}", "--ssl-certfile", f"{runtime / 'crt'}"]
    command += ["--ssl-ca-certfile", f"{runtime / 'ca'}"]
    os.execve(sys.executable, command, own)


def starts_apps(place: Path) -> bool:
    """Return whether the process beside the SuperNode that was started last is there."""
    try:
        with (place / "state" / "runtime" / "secret").open("rb") as secret:
            fcntl.flock(secret, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # it was never started
    return False


def serve_apps(place: Path, supernode: int) -> None:
    """Start a process for each task of a SuperNode, the parent of this process, until it ends.

    Without this process the SuperNode would seem to be well, and never answer: it ends with it.
    """
    signal.signal(signal.SIGTERM, _end)  # so that the process of a message ends as well
    try:
        _serve_apps(place, supernode)
    except BaseException as error:
        if os.getppid() == supernode:
            # Flower ends with status 0 on a SIGTERM, which is for an end that somebody asked for.
            failed = isinstance(error, Exception)
            os.kill(supernode, signal.SIGKILL if failed else signal.SIGTERM)
        raise


def _end(number: int, _: object) -> None:
    sys.exit(128 + number)


def _serve_apps(place: Path, supernode: int) -> None:
    folder, address = place / "state" / "runtime", f"127.0.0.1:{kit.port(place, 'NODE_PORT')}"
    logs.begin(kit.read(place).machine)
    deadline = kit.deadline(place)
    answering: Answering | None = None
    looked, asked = 0.0, time.monotonic()
    trusted, secret = (folder / "ca").read_bytes(), (folder / "secret").read_bytes()
    try:
        with Runtime(address, trusted, secret) as runtime:
            while os.getppid() == supernode:
                if answering and not answering.goes_on(runtime):
                    answering = None
                if not answering and (token := _task(runtime)):
                    process = start_app(address, folder / "ca", token)
                    answering = Answering(process, token, deadline)
                    log.info("process %d answers a message", process.pid)
                    asked = time.monotonic()
                if time.monotonic() - looked > LOGS_INTERVAL:
                    looked = time.monotonic()
                    logs.rotate(place / "logs")
                time.sleep(pause(time.monotonic() - asked, POLL_INTERVAL))
    finally:
        if answering:
            answering.kill()


def _task(runtime: Runtime) -> str:
    """Return the token of a task; "" where there is none, or no SuperNode that answers."""
    try:
        return runtime.task()
    except httpx.HTTPError:
        time.sleep(1)  # the SuperNode is about to listen, or to end
        return ""


def start_app(address: str, trusted: Path, token: str) -> subprocess.Popen[bytes]:
    """Start the process of a task, which ends with this one, and return it.

    It leads a process group of its own. A session of its own would undo the node's NICE: Linux may
    share a processor among sessions first.

    Args:
        address: HOST:PORT of the SuperNode's Runtime API.
        token: of the task, which no other account may read.
    """
    with tempfile.TemporaryFile() as file:
        file.write(token.encode())
        file.flush()
        command = [executable(APP), "--runtime-api-address", address]
        command += ["--root-certificates", f"{trusted}", "--parent-pid", f"{os.getpid()}"]
        command += ["--token-file", f"/dev/fd/{file.fileno()}"]
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, pass_fds=[file.fileno()], process_group=0
        )
