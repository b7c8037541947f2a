"""A SuperNode that gives its tasks only to its own processes, and to no other account.

Flower's SuperNode gives each task, on loopback, to the first program that asks. A task has the
run's configuration, the model, and the right to answer for the node. Flower also starts a task's
process with the token on the command line, which every account can read. Here a task requires a
secret, over TLS, with a secret and a key that are new with each start. The token stays in memory.
"""

import fcntl
import logging
import os
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.metadata import version
from multiprocessing.process import BaseProcess
from pathlib import Path

import httpx

import fedsim
from fedsim.common.waiting import pause
from fedsim.deployment import certificates, kit, logs, upkeep
from fedsim.federation.protocol import node_machine
from fedsim.federation.runtimes.flower_command import environment
from fedsim.federation.runtimes.flower_services import RuntimeApi

log = logging.getLogger(__name__)

BEAT_INTERVAL = 10.0
"""Seconds between two heartbeats. Flower gives a task up after 30 seconds at first, then 60."""

SLOW = 60.0
"""Seconds after which the log mentions a busy process; the time doubles with each line."""

GRACE = 60.0
"""Seconds in which a process must end after its answer was sent, or after it was killed."""


class Answering:
    """A process that answers one message within a deadline in seconds, with its child processes.

    On a busy machine a process may need minutes to start. Flower gives a process up that sends no
    heartbeat within 30 seconds, and hands its task out again. So this program sends the heartbeats
    while the process lives, and kills a process that takes too long.
    """

    def __init__(self, process: BaseProcess, token: str, deadline: float) -> None:
        now = time.monotonic()
        assert process.pid is not None  # it was started
        self.process, self.number = process, process.pid
        self._token = token
        self._deadline = deadline
        self._begun, self._end = now, now + deadline
        self._next_beat, self._next_line = now, now + SLOW
        self._claimed = True

    def goes_on(self, runtime: RuntimeApi) -> bool:
        """Return whether the process lives. If it does, keep its claim; else end its children."""
        if (status := self.process.exitcode) is not None:
            self.kill()  # its remaining children
            if status:
                self._fail(runtime, status)
            return False
        now = time.monotonic()
        if now > self._end:
            self._kill_late(now)
        if now > self._next_line:
            self._next_line = 2 * now - self._begun
            busy = "process %d has been answering a message for %.0f s"
            log.warning(busy, self.number, now - self._begun)
        if self._claimed and now > self._next_beat:
            self._next_beat = now + BEAT_INTERVAL
            self._beat(runtime, now)
        return True

    def kill(self) -> None:
        """Kill the process and its children.

        On a polite signal, Flower's process tells the SuperNode that its task has failed, without
        an answer to the message. The SuperNode would then wait for the answer forever.
        """
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.number, signal.SIGKILL)

    def _kill_late(self, now: float) -> None:
        late = "process %d is killed: it did not end within %.0f s"
        log.error(late, self.number, now - self._begun)
        self.kill()
        self._claimed = False  # so that the server learns it, even if the process survives
        self._end = now + GRACE  # a process that waits for a disk survives for a while

    def _beat(self, runtime: RuntimeApi, now: float) -> None:
        try:
            self._claimed = runtime.keep(self._token)
        except httpx.HTTPError as error:
            log.warning("cannot send a heartbeat to the SuperNode: %s", error)
        if not self._claimed:
            # The message was answered, or given up. The process can achieve nothing more.
            self._end = min(self._end, now + GRACE)

    def _fail(self, runtime: RuntimeApi, status: int) -> None:
        log.warning("process %d ended with status %d", self.number, status)
        late = time.monotonic() - self._begun > self._deadline
        reason = (
            f"no answer within {self._deadline:.0f} s, the node's DEADLINE"
            if late
            else "its process ended before it read the message"
        )
        # A process that read the message has answered it, or Flower answers with an error.
        with suppress(httpx.HTTPError, RuntimeError):
            runtime.fail(self._token, reason)


log = logging.getLogger(__name__)

SUPERNODE = "fedsim.federation.runtimes.mended_supernode"
"""Module that becomes Flower's SuperNode. This process does not import it."""

CERTIFICATE_DAYS = 3650
"""Longer than any node runs."""

POLL_INTERVAL = 0.1
"""Seconds between two requests for a task shortly after the last one. An idle node asks rarely."""

LOGS_INTERVAL = 60.0
"""Seconds between two checks of the log's length."""


def start(place: Path) -> None:
    """Become the SuperNode of a machine's folder, beside a process that starts its apps."""
    logs.begin(kit.read_kit(place).machine)
    settings, port = kit.settings(place), kit.port(place, "NODE_PORT")
    if upkeep.take_up(place, settings.get("SUPERLINK", "")):
        log.info("has a new key from now on")
    pair, trusted = certificates.loopback(CERTIFICATE_DAYS)
    runtime, secret = place / "state" / "runtime", secrets.token_bytes(32)
    contents = {"secret": secret, "key": pair.private, "crt": pair.public, "ca": trusted}
    for name, content in contents.items():
        kit.write_file(runtime / name, content)
    beside = [sys.executable, "-m", "fedsim", "deploy", "apps", f"{place}/", str(os.getpid())]
    own = environment(place / "flower") | {node_machine.DEADLINE: f"{kit.deadline(place)}"}
    with (runtime / "secret").open("rb") as held:
        # The other process now holds the lock until it ends. `starts_apps` tests the lock.
        fcntl.flock(held, fcntl.LOCK_EX)
        subprocess.Popen([*beside, f"{held.fileno()}"], env=own, pass_fds=[held.fileno()])
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


def serve_apps(place: Path, supernode: int, held: int) -> None:
    """Start a process for each task of the parent SuperNode, until both end together.

    Without this process the SuperNode would look healthy but never answer.

    Args:
        place: the machine's folder.
        supernode: the SuperNode's process number.
        held: the inherited file descriptor of the lock that `starts_apps` tests.
    """

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)  # so that the process of a message ends, too
    try:
        _serve_apps(place, supernode, held)
    except BaseException as error:
        if os.getppid() == supernode:
            # On SIGTERM, Flower ends with status 0, which stands for a requested end.
            failed = isinstance(error, Exception)
            os.kill(supernode, signal.SIGKILL if failed else signal.SIGTERM)
        raise


def _serve_apps(place: Path, supernode: int, held: int) -> None:
    from fedsim.deployment import own_app  # noqa: PLC0415  (only this process answers messages)

    folder, address = place / "state" / "runtime", f"127.0.0.1:{kit.port(place, 'NODE_PORT')}"
    machine = kit.read_kit(place).machine
    logs.begin(machine)
    if machine != "auditor":
        own_app.import_ahead()
    deadline = kit.deadline(place)
    answering: Answering | None = None
    looked, last_question = 0.0, time.monotonic()
    trusted, secret = (folder / "ca").read_bytes(), (folder / "secret").read_bytes()
    try:
        with RuntimeApi(address, trusted, secret) as runtime:
            while os.getppid() == supernode:
                if answering and not answering.goes_on(runtime):
                    answering = None
                if not answering and (token := _task(runtime)):
                    process = own_app.begin(address, trusted, token, held)
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


def _task(runtime: RuntimeApi) -> str:
    """Return the token of a task; "": no task, or the SuperNode does not answer."""
    try:
        return runtime.task()
    except httpx.HTTPError:
        time.sleep(1)  # the SuperNode is starting or ending
        return ""
