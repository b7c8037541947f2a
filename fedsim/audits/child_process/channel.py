"""Runs a user's code in its own process, so that nothing it does there becomes a verdict.

The audit sends a line of JSON over a private socket and gets one back. It is an error if the
process ends, exceeds the time limit, or sends anything else.
"""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from adversaries.errors import InputError

LONGEST_ANSWER = 64 * 2**20
"""Bytes; enough for thousands of rounds of hundreds of clients."""

WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
"""Makes PyTorch's threads sleep while they wait for each other. On a busy machine with two cores, a
step of a small network took 7.5 ms of CPU this way, and 11 ms with busy waiting."""

GRACE = 2.0
"""Seconds in which a process may end by itself before it is killed."""

NO_MEASUREMENT = "the {}'s process sent something other than measurements; there is no verdict"


class AppFailedError(RuntimeError):
    """The audited code failed, or did not do its task."""


@dataclass(frozen=True)
class ProcessReply:
    """An answer of the process, or why there is none.

    Attributes:
        refused: text of an InputError in the process: the request is at fault.
        failed: text of an AppFailedError in the process: the code is at fault.
    """

    refused: str | None = None
    failed: str | None = None


Answer = TypeVar("Answer", bound=ProcessReply)
Log = IO[bytes] | None


class Channel:
    def __init__(
        self, kind: str, channel: socket.socket, process: subprocess.Popen[bytes], time_limit: float
    ) -> None:
        self._kind, self._channel = kind, channel
        self._process, self._time_limit = process, time_limit

    def ask(
        self, message: object, answers: TypeAdapter[Answer], longest: int = LONGEST_ANSWER
    ) -> Answer:
        try:
            deadline, received = time.monotonic() + self._time_limit, bytearray()
            try:
                self._channel.settimeout(self._time_limit)
                self._channel.sendall(_line(message))
                while not received.endswith(b"\n"):
                    # A deadline too: processes that the code started may keep the socket open.
                    self._channel.settimeout(max(deadline - time.monotonic(), 1e-3))
                    part = self._channel.recv(2**16)
                    if not part:
                        raise AppFailedError(self._ended())
                    received += part
                    if len(received) > longest:
                        raise self.no_measurement()
            except TimeoutError:
                raise AppFailedError(
                    f"the {self._kind} did not answer within {self._time_limit:g} s, so that "
                    "there is no verdict; give it a longer time limit"
                ) from None
            except (BrokenPipeError, ConnectionResetError):
                raise AppFailedError(self._ended()) from None
            answer = answers.validate_json(bytes(received), strict=True)
        except ValidationError:
            raise self.no_measurement() from None
        if answer.refused is not None:
            raise InputError(answer.refused)
        if answer.failed is not None:
            raise AppFailedError(answer.failed)
        return answer

    def no_measurement(self) -> AppFailedError:
        return AppFailedError(NO_MEASUREMENT.format(self._kind))

    def _ended(self) -> str:
        try:
            status = self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            return (
                f"the {self._kind}'s process closed its channel without an answer; there is no "
                "verdict"
            )
        how = f"with exit status {status}"
        if status < 0:
            how = f"by signal {-status}" + (", perhaps for lack of memory" * (status == -9))
        return f"the {self._kind}'s process ended {how} before it was measured; there is no verdict"


@contextlib.contextmanager
def started(module: str, kind: str, time_limit: float, log: Log = None) -> Iterator[Channel]:
    """Start a process that ends with the block, and yield it.

    Args:
        module: module that the process runs, with its socket's descriptor as an argument.
        kind: kind of the audited code in messages, such as "app".
        time_limit: seconds for every answer.
        log: file that takes everything that the code prints; None: nothing is kept.
    """
    # Unbuffered, so that a killed process leaves all that it printed.
    own = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUNBUFFERED": "1"}
    channel, theirs = socket.socketpair()
    with channel:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if log is None else log,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                env=WAITING | os.environ | own,
                # A group, so that it can be killed; no terminal, where code could write a verdict.
                start_new_session=True,
            )
        try:
            yield Channel(kind, channel, process, time_limit)
        finally:
            with contextlib.suppress(OSError):  # the process has ended
                channel.shutdown(socket.SHUT_RDWR)  # ends a thread that waits for an answer
            channel.close()  # ends the process, unless its code delays it
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
            with contextlib.suppress(ProcessLookupError):  # the whole group has ended already
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def serve(answers: Callable[[bytes, Iterator[bytes]], Iterator[ProcessReply]]) -> None:
    """Answer, in the process, until the audit ends; argv[1] is the socket's descriptor."""
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        channel.set_inheritable(False)
        try:
            with channel.makefile("rb") as messages:
                first = messages.readline()
                if not first:  # the audit ended before its first message
                    return
                for answer in answers(first, messages):
                    channel.sendall(_line(answer))
        except InputError as error:
            channel.sendall(_line(ProcessReply(refused=str(error))))
        except AppFailedError as error:
            channel.sendall(_line(ProcessReply(failed=str(error))))
        except BrokenPipeError:  # the audit was interrupted, and reports that itself
            return


def _line(message: object) -> bytes:
    """Return a message as a line of JSON with NaN and infinity."""
    return to_json(message, inf_nan_mode="constants") + b"\n"


def set_seeds(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  (Flower draws its noise from it)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)
