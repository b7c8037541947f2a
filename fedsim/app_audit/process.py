"""An app in a process of its own, so that nothing its code does there is a verdict.

The audit asks for one run after another over a private socket and gets measurements back, a line of
JSON each; the verdict is worked out here, from them. A process that ends, falls silent or answers
something else is an error.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from adversaries.errors import InputError
from fedsim.app_audit.measurement import AppFailedError, Execution, Script
from fedsim.config import Scalar

LONGEST_ANSWER = 64 * 2**20
"""Bytes: thousands of rounds of hundreds of clients."""

LONGEST_LINE = 4096
"""Bytes of what the app prints that are shown as one line."""

GRACE = 2.0
"""Seconds in which a process may end in order before it is killed."""


@dataclass(frozen=True)
class Order:
    """Which app is to be loaded, and how; the first message to the process.

    Attributes:
        directory: of the app's pyproject.toml.
        clients: nodes of the federation that the app is run in.
        overrides: of the app's run configuration, by dotted key.
    """

    directory: str
    clients: int
    overrides: dict[str, Scalar]


@dataclass(frozen=True)
class Request:
    """One run, asked for after an order was answered.

    Attributes:
        seed: of the global generators, set before the run.
        script: what clients send instead of training; None for an honest run.
    """

    seed: int
    script: Script | None


@dataclass(frozen=True)
class Answer:
    """What the process says to an order or a request; one of the fields is not None.

    Attributes:
        name: the app's, in answer to an order.
        execution: what a run showed, in answer to a request.
        refused: what is wrong with the directory or its configuration, an InputError there.
        failed: what is wrong with the app's code, an AppFailedError there.
    """

    name: str | None = None
    execution: Execution | None = None
    refused: str | None = None
    failed: str | None = None


ORDER, REQUEST, ANSWER = TypeAdapter(Order), TypeAdapter(Request), TypeAdapter(Answer)


def line(message: Order | Request | Answer) -> bytes:
    """Return a message as a line of JSON, which has NaN and infinity."""
    return to_json(message, inf_nan_mode="constants") + b"\n"


class AppProcess:
    """An app that runs in another process. Made by `opened`."""

    def __init__(
        self,
        order: Order,
        channel: socket.socket,
        process: subprocess.Popen[bytes],
        time_limit: float,
    ) -> None:
        self._channel, self._process, self._time_limit = channel, process, time_limit
        self.clients = order.clients
        self.name = self._ask(order).name or ""

    def execute(self, seed: int, script: Script | None = None) -> Execution:
        """Return what one run of the app in its process showed.

        Args:
            seed: of the global generators there, Python's, NumPy's and PyTorch's.
            script: what clients send instead of training; None for an honest run, one of which must
                come before a scripted one.

        Raises:
            AppFailedError: the app fails, its process ends, or it is silent past the time limit.
        """
        answer = self._ask(Request(seed, script))
        if answer.execution is None:
            raise AppFailedError(NO_MEASUREMENT)
        return answer.execution

    def _ask(self, message: Order | Request) -> Answer:
        try:
            answer = ANSWER.validate_json(self._exchange(line(message)), strict=True)
        except TimeoutError:
            raise AppFailedError(
                f"the app did not answer within {self._time_limit:g} s, and there is no verdict; "
                "give it a longer time limit"
            ) from None
        except ValidationError:
            raise AppFailedError(NO_MEASUREMENT) from None
        if answer.refused is not None:
            raise InputError(answer.refused)
        if answer.failed is not None:
            raise AppFailedError(answer.failed)
        return answer

    def _exchange(self, request: bytes) -> bytes:
        """Return the line that answers a request. Raises TimeoutError, AppFailedError."""
        deadline, received = time.monotonic() + self._time_limit, bytearray()
        try:
            self._channel.settimeout(self._time_limit)
            self._channel.sendall(request)
            while not received.endswith(b"\n"):
                # Not only by the end of the process: others that it started may keep the socket.
                self._channel.settimeout(max(deadline - time.monotonic(), 1e-3))
                part = self._channel.recv(2**16)
                if not part:
                    raise AppFailedError(self._ended())
                received += part
                if len(received) > LONGEST_ANSWER:
                    raise AppFailedError(NO_MEASUREMENT)
        except (BrokenPipeError, ConnectionResetError):
            raise AppFailedError(self._ended()) from None
        return bytes(received)

    def _ended(self) -> str:
        """Say how the process ended, which it did without an answer."""
        try:
            status = self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            return "the app's process closed its channel without an answer; there is no verdict"
        how = f"with exit status {status}"
        if status < 0:
            how = f"by signal {-status}" + (", for want of memory perhaps" * (status == -9))
        return f"the app's process ended {how} before it was measured; there is no verdict"


NO_MEASUREMENT = "the app's process answered with something else than measurements; no verdict"


@contextlib.contextmanager
def opened(
    directory: Path,
    clients: int,
    overrides: Mapping[str, Scalar],
    time_limit: float,
    show: Callable[[str], None],
) -> Iterator[AppProcess]:
    """Load the app in a directory, in a process that ends with the block, and yield it.

    Args:
        directory: of the app's pyproject.toml.
        clients: nodes of the federation that the app is run in.
        overrides: of the app's run configuration, by dotted key.
        time_limit: in seconds, of loading and of every run, each by itself.
        show: called, in a thread, with every line that the app prints, of `LONGEST_LINE` bytes at
            most.

    Raises:
        InputError: as `loading.loaded`.
        AppFailedError: loading takes too long, or ends the process.
    """
    channel, theirs = socket.socketpair()
    with channel:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "fedsim.app_audit.worker", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                # A group to kill; no terminal, which the app could write a verdict to.
                start_new_session=True,
            )
        assert process.stdout is not None
        relay = threading.Thread(target=_relay, args=[process.stdout, show], daemon=True)
        relay.start()
        try:
            order = Order(str(directory), clients, dict(overrides))
            yield AppProcess(order, channel, process, time_limit)
        finally:
            channel.close()  # it ends by itself then, unless its app holds it up
            relay.join(GRACE)
            with contextlib.suppress(ProcessLookupError):  # neither it nor what it started is left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _relay(output: IO[bytes], show: Callable[[str], None]) -> None:
    with output:
        while text := output.readline(LONGEST_LINE):
            show(text.decode(errors="replace").rstrip("\r\n"))
