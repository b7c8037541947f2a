"""A node: a SuperNode that gives its tasks only to its parent, which answers them.

Flower's SuperNode gives each task, on loopback, to the first program that asks. A task has the
run's configuration, the model, and the right to answer for the node. Flower also starts a task's
process with the token on the command line, which every account can read. Here a task requires a
secret, over TLS, with a secret and a key that are new with each start. The token stays in memory.
"""

import logging
import os
import pickle
import secrets
import signal
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import httpx
from flwr.app import Context, Message

import fedsim
from fedsim.common.waiting import pause
from fedsim.deployment import certificates, kit, own_app
from fedsim.deployment.own_app import Answer, Question
from fedsim.deployment.supervision import Part, Service, ending, log_as
from fedsim.federation.runtimes.flower_command import environment
from fedsim.federation.runtimes.flower_services import RuntimeApi

log = logging.getLogger(__name__)

BEAT_INTERVAL = 10.0
"""Seconds between two heartbeats. Flower gives a task up after 30 seconds at first, then 60."""

SUPERNODE = "fedsim.federation.runtimes.mended_supernode"
"""Module that becomes Flower's SuperNode."""

CERTIFICATE_DAYS = 3650
"""Longer than any node runs."""

POLL_INTERVAL = 0.1
"""Seconds between two requests for a task shortly after the last one. An idle node asks rarely."""


class Answering:
    """A claimed task: its message, the process that answers it, and the way of the answer back.

    Flower gives a task up that sends no heartbeat within 30 seconds, and hands it out again. A
    message may need minutes to arrive, and a process to answer it. So this program sends the
    heartbeats, and kills a process that takes longer than its deadline.

    deadline: in seconds.
    """

    def __init__(self, runtime: RuntimeApi, token: str, deadline: float) -> None:
        now = time.monotonic()
        self._token, self._deadline = token, deadline
        self._end, self._next_beat = now + deadline, now
        self._reply: tuple[Message, Context] | None = None
        self._question: Future[Question] = Future()
        self._answer: Answer | None = None
        threading.Thread(target=self._fetch, args=(runtime,), daemon=True).start()

    def _fetch(self, runtime: RuntimeApi) -> None:
        try:
            self._question.set_result(Question(*runtime.message(self._token)))
        except Exception as error:
            self._question.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))

    def goes_on(self, runtime: RuntimeApi) -> bool:
        """Return whether the task goes on. The message is answered, or given up, where not.

        Raises httpx.HTTPError, RuntimeError or ValueError if the SuperNode does not pass the
        message, or does not take the answer.
        """
        now = time.monotonic()
        if self._question.done() and self._question.exception() and not runtime.keep(self._token):
            log.info("the SuperNode has dropped a message whose run has ended")
            return False
        if self._reply is None:
            self._reply = self._look(now)
        if self._reply is None and now <= self._next_beat:
            return True
        self._next_beat = now + BEAT_INTERVAL
        if not runtime.keep(self._token):
            log.warning("the SuperNode has given the message up, so this node does not answer it")
        elif self._reply is None:
            return True
        else:
            runtime.answer(self._token, *self._reply)
        self.kill()
        return False

    def kill(self) -> None:
        """Kill the process, and the processes that it started."""
        if self._answer is None:
            return
        number = self._answer.process.pid
        assert number is not None  # it was started
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(number, signal.SIGKILL)
        self._answer.file.close()

    def _look(self, now: float) -> tuple[Message, Context] | None:
        """Return the answer, with its context, once there is one."""
        if not self._question.done():
            return None
        question = self._question.result()
        if self._answer is None:
            self._answer = own_app.begin(question)
            log.info("process %d answers a message", self._answer.process.pid)
        status = self._answer.process.exitcode
        if status == 0:
            # A client's own code may end its process before there is an answer.
            with suppress(EOFError, pickle.UnpicklingError):
                return self._answer.read()
        if status is None and now <= self._end:
            return None
        self.kill()
        if status is None:
            why = f"no answer within {self._deadline:.0f} s, the node's DEADLINE"
        else:
            why = f"the process that computed the answer {ending(status)}"
        log.error("the server gets no answer: %s", why)
        return question.failed(why), question.context


def serve(place: Path) -> None:
    """Run the SuperNode of a machine's folder, and answer its messages, one at a time."""
    machine = kit.read_kit(place).machine
    log_as(machine)
    logging.getLogger("flwr").handlers.clear()  # its lines go to the log once, in this form
    deadline, address = kit.deadline(place), f"127.0.0.1:{kit.port(place, 'NODE_PORT')}"
    os.environ |= environment(place / "flower")
    log.info("supernode begins: fedsim %s, flwr %s", fedsim.__version__, version("flwr"))
    part = Part("the SuperNode", lambda: _supernode(place), dict(os.environ))
    with Service([part], place / "logs") as service:
        service.watch()
        if machine != "auditor":
            own_app.import_ahead()
        while True:
            if service.watch():
                _answer_all(place, service, address, deadline)
            time.sleep(POLL_INTERVAL)


def _supernode(place: Path) -> list[str]:
    """Write the secrets of a new SuperNode; return its command line."""
    settings = kit.settings(place)
    pair, trusted = certificates.loopback(CERTIFICATE_DAYS)
    runtime = place / "state" / "runtime"
    secret = secrets.token_bytes(32)
    contents = {"secret": secret, "key": pair.private, "crt": pair.public, "ca": trusted}
    for name, content in contents.items():
        kit.write_file(runtime / name, content)
    command = [sys.executable, "-m", SUPERNODE]
    command += ["--superlink", settings.get("SUPERLINK", "")]
    command += ["--root-certificates", f"{place / 'ca.crt'}"]
    command += ["--auth-supernode-private-key", f"{place / 'node.key'}"]
    command += ["--node-config", f"{place / 'node.toml'}"]
    command += ["--port", f"{kit.port(place, 'NODE_PORT')}"]
    command += ["--isolation", "process", "--superexec-auth-secret-file", f"{runtime / 'secret'}"]
    command += ["--ssl-keyfile", f"{runtime / 'key'}", "--ssl-certfile", f"{runtime / 'crt'}"]
    return [*command, "--ssl-ca-certfile", f"{runtime / 'ca'}"]


def _answer_all(place: Path, service: Service, address: str, deadline: float) -> None:
    """Answer the messages of a SuperNode until it ends."""
    folder, answering = place / "state" / "runtime", None
    last_question = time.monotonic()
    trusted, secret = (folder / "ca").read_bytes(), (folder / "secret").read_bytes()
    try:
        with RuntimeApi(address, trusted, secret) as runtime:
            while service.watch():
                try:
                    if answering and not answering.goes_on(runtime):
                        answering = None
                    if not answering and (token := _task(runtime)):
                        answering = Answering(runtime, token, deadline)
                        last_question = time.monotonic()
                except httpx.TransportError as error:
                    log.warning("the SuperNode does not answer: %s", error)
                    time.sleep(1)
                except (httpx.HTTPError, RuntimeError, ValueError) as error:
                    # Else it would wait for the answer forever.
                    service.restart(0, f"the SuperNode does not pass a message ({error})")
                time.sleep(pause(time.monotonic() - last_question, POLL_INTERVAL))
    finally:
        if answering:
            answering.kill()


def _task(runtime: RuntimeApi) -> str:
    """Return the token of a task; "": no task, or the SuperNode is starting or ending."""
    try:
        return runtime.task()
    except httpx.HTTPError:
        time.sleep(1)
        return ""
