"""A SuperNode that gives its tasks only to its own processes, and to no other account.

Flower's SuperNode gives each task, on loopback, to the first program that asks. A task has the
run's configuration, the model, and the right to answer for the node. Flower also starts a task's
process with the token on the command line, which every account can read. Here a task requires a
secret, over TLS, with a secret and a key that are new with each start. The token is in a file
without a name.
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
"""Module that becomes Flower's SuperNode. This process does not import it."""

APP = "flwr-clientapp"
"""Flower's program for the process of a task."""

CERTIFICATE_DAYS = 3650
"""Longer than any node runs."""

POLL_INTERVAL = 0.1
"""Seconds between two requests for a task shortly after the last one. An idle node asks rarely."""

LOGS_INTERVAL = 60.0
"""Seconds between two checks of the log's length."""


def start(place: Path) -> None:
    """Become the SuperNode of a machine's folder, beside a process that starts its apps."""
    executable(APP)
    logs.begin(kit.read(place).machine)
    settings, port = kit.settings(place), kit.port(place, "NODE_PORT")
    if upkeep.take_up(place, settings.get("SUPERLINK", "")):
        log.info("has a new key from now on")
    pair, trusted = certificates.loopback(CERTIFICATE_DAYS)
    runtime, secret = place / "state" / "runtime", secrets.token_bytes(32)
    contents = {"secret": secret, "key": pair.private, "crt": pair.public, "ca": trusted}
    for name, content in contents.items():
        kit.write_file(runtime / name, content)
    beside = [sys.executable, "-m", "fedsim", "deploy", "apps", f"{place}/", str(os.getpid())]
    own = environment(place / "flower") | {
        node_machine.VERSION: fedsim.__version__,
        node_machine.DEADLINE: f"{kit.deadline(place)}",
    }
    with (runtime / "secret").open("rb") as held:
        # The other process now holds the lock until it ends. `starts_apps` tests the lock.
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
    """Return whether the process beside the last started SuperNode lives."""
    try:
        with (place / "state" / "runtime" / "secret").open("rb") as secret:
            fcntl.flock(secret, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # the node was never started
    return False


def serve_apps(place: Path, supernode: int) -> None:
    """Start a process for each task of the parent SuperNode, until both end together.

    Without this process the SuperNode would look healthy but never answer.
    """

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)  # so that the process of a message ends, too
    try:
        _serve_apps(place, supernode)
    except BaseException as error:
        if os.getppid() == supernode:
            # On SIGTERM, Flower ends with status 0, which stands for a requested end.
            failed = isinstance(error, Exception)
            os.kill(supernode, signal.SIGKILL if failed else signal.SIGTERM)
        raise


def _serve_apps(place: Path, supernode: int) -> None:
    folder, address = place / "state" / "runtime", f"127.0.0.1:{kit.port(place, 'NODE_PORT')}"
    logs.begin(kit.read(place).machine)
    deadline = kit.deadline(place)
    answering: Answering | None = None
    looked, last_question = 0.0, time.monotonic()
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
                    last_question = time.monotonic()
                if time.monotonic() - looked > LOGS_INTERVAL:
                    looked = time.monotonic()
                    logs.rotate(place / "logs")
                time.sleep(pause(time.monotonic() - last_question, POLL_INTERVAL))
    finally:
        if answering:
            answering.kill()


def _task(runtime: Runtime) -> str:
    """Return the token of a task; "": no task, or the SuperNode does not answer."""
    try:
        return runtime.task()
    except httpx.HTTPError:
        time.sleep(1)  # the SuperNode is starting or ending
        return ""


def start_app(address: str, trusted: Path, token: str) -> subprocess.Popen[bytes]:
    """Start and return the process of a task, which ends with this process.

    It leads its own process group. A new session would undo the node's NICE, since Linux may share
    a processor among sessions first.
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
