"""Runs a user's code in its own process, so that nothing it does there becomes a verdict.

The audit calls methods of an object in that process. A call is a line of JSON over a private
socket, and so is its answer. It is an error if the process ends, exceeds the time limit, or sends
anything else.
"""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import IO, Any, Literal, get_type_hints

import numpy as np
from pydantic import TypeAdapter, ValidationError, validate_call
from pydantic_core import to_json

from adversaries.errors import InputError

LONGEST_ANSWER = 64 * 2**20
"""Bytes; enough for thousands of rounds of hundreds of clients."""

WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
"""Makes PyTorch's threads sleep while they wait for each other. On a busy machine with two cores, a
step of a small network took 7.5 ms of CPU this way, and 11 ms with busy waiting."""

GRACE = 2.0
"""Seconds in which a process may end by itself before it is killed."""

Log = IO[bytes] | None


class AppFailedError(RuntimeError):
    """The audited code failed, or did not do its task."""


NO_MEASUREMENT = "the {}'s process sent something other than measurements; there is no verdict"


class Channel:
    """Calls methods of the object that a process serves; `kind`: "app" or "loop", for messages."""

    def __init__(
        self, kind: str, channel: socket.socket, process: subprocess.Popen[bytes], time_limit: float
    ) -> None:
        self._kind, self._channel = kind, channel
        self._process, self._time_limit = process, time_limit

    def call(self, answers: Any, name: str, *arguments: object) -> Any:
        """Return a method's answer, or a property, which must be of the type `answers`.

        Raises InputError where the process refuses its input, and AppFailedError where the code
        fails or no such answer comes.
        """
        try:
            line = self._exchanged(_line((name, *arguments)))
            how, answer = _replies(answers).validate_json(line, strict=True)
        except TimeoutError:
            raise AppFailedError(
                f"the {self._kind} did not answer within {self._time_limit:g} s, so that there is "
                "no verdict; give it a longer time limit"
            ) from None
        except (BrokenPipeError, ConnectionResetError):
            raise AppFailedError(self._ended()) from None
        except ValidationError:
            raise AppFailedError(NO_MEASUREMENT.format(self._kind)) from None
        if how == "refused":
            raise InputError(answer)
        if how == "failed":
            raise AppFailedError(answer)
        return answer

    def served(self, kind: type) -> Any:
        """Return the object in the process, whose answers must have the types of its class."""
        return _Remote(self, kind)

    def _exchanged(self, line: bytes) -> bytes:
        deadline, received = time.monotonic() + self._time_limit, bytearray()
        self._channel.settimeout(self._time_limit)
        self._channel.sendall(line)
        while not received.endswith(b"\n"):
            # A deadline too: processes that the code started may keep the socket open.
            self._channel.settimeout(max(deadline - time.monotonic(), 1e-3))
            part = self._channel.recv(2**16)
            if not part:
                raise AppFailedError(self._ended())
            received += part
            if len(received) > LONGEST_ANSWER:
                raise AppFailedError(NO_MEASUREMENT.format(self._kind))
        return bytes(received)

    def _ended(self) -> str:
        try:
            status = self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            how = "closed its channel"
        else:
            how = f"ended with exit status {status}"
            how = how if status >= 0 else f"ended by signal {-status}"
            how += ", perhaps for lack of memory," if status == -signal.SIGKILL else ""
        return f"the {self._kind}'s process {how} before it was measured; there is no verdict"


@dataclass(frozen=True)
class _Remote:
    _channel: Channel
    _kind: type

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._kind, name)
        if isinstance(member, property):
            return self._channel.call(get_type_hints(member.fget)["return"], name)
        return partial(self._channel.call, get_type_hints(member)["return"], name)


@cache
def _replies(answers: Any) -> TypeAdapter[Any]:
    words = tuple[Literal["refused", "failed"], str]
    return TypeAdapter(tuple[Literal["answer"], answers] | words)


@contextlib.contextmanager
def started(
    module: str, kind: str, time_limit: float, *order: object, log: Log = None
) -> Iterator[Channel]:
    """Start a process that ends with the block, and yield the channel to it.

    Args:
        module: module that the process runs, with its socket's descriptor as an argument.
        kind: kind of the audited code in messages, such as "app".
        time_limit: seconds for every answer.
        order: arguments of the function that `module` serves.
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
            channel.sendall(_line(order))
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


def serve(opened: Callable[..., contextlib.AbstractContextManager[Any]]) -> None:
    """Serve an object in the process until the audit ends; argv[1] is the socket's descriptor.

    opened: a context manager of the object. Its arguments are the order.
    """
    with socket.socket(fileno=int(sys.argv[1])) as channel, contextlib.suppress(BrokenPipeError):
        channel.set_inheritable(False)
        with channel.makefile("rb") as messages:
            try:
                order = messages.readline()
                if not order:  # the audit ended before its first message
                    return
                with validate_call(opened)(*json.loads(order)) as served:
                    for line in messages:
                        name, *arguments = json.loads(line)
                        answer = getattr(served, name)
                        if callable(answer):
                            answer = validate_call(answer)(*arguments)
                        channel.sendall(_line(("answer", answer)))
            except InputError as error:
                channel.sendall(_line(("refused", str(error))))
            except AppFailedError as error:
                channel.sendall(_line(("failed", str(error))))


def _line(message: object) -> bytes:
    """Return a message as a line of JSON with NaN and infinity."""
    return to_json(message, inf_nan_mode="constants") + b"\n"


def set_seeds(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  (Flower draws its noise from it)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)
