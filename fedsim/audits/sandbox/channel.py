"""Code of somebody else in a process of its own, so that nothing it does there is a verdict.

The audit sends a line of JSON over a private socket and gets one back. A process that ends,
falls silent past the time limit or answers something else is an error.
"""

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from adversaries.errors import InputError

LONGEST_ANSWER = 64 * 2**20
"""Bytes: thousands of rounds of hundreds of clients."""

LONGEST_LINE = 4096
"""Bytes of what the code prints that are shown as one line."""

MOST_LINES = 1000
"""Lines of what the code prints that are shown."""

CONTROL = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
"""What moves a terminal's cursor or colours its text."""

BAR = re.compile(r"\d+%\|?|\d+/\d+ \[|\d+it \[")
"""Where the part of a progress bar begins that changes while it runs."""

WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
"""Has PyTorch's threads sleep while they wait for each other. On a busy machine with two cores a
step of a small network took 7.5 ms of the processor so, and 11 ms where they wait in a loop."""

GRACE = 2.0
"""Seconds in which a process may end in order before it is killed."""

NO_MEASUREMENT = "the {}'s process answered with something else than measurements; no verdict"


class AppFailedError(RuntimeError):
    """The code that is audited failed, or did not do what it is to do."""


@dataclass(frozen=True)
class Reply:
    """What the process says, or why it does not.

    Attributes:
        refused: what is wrong with what was asked, an InputError there.
        failed: what is wrong with the code, an AppFailedError there.
    """

    refused: str | None = None
    failed: str | None = None


Answer = TypeVar("Answer", bound=Reply)


class Channel:
    """The other process. Made by `started`."""

    def __init__(
        self,
        what: str,
        channel: socket.socket,
        process: subprocess.Popen[bytes],
        time_limit: float,
    ) -> None:
        self._what, self._channel = what, channel
        self._process, self._time_limit = process, time_limit

    def ask(self, message: object, answers: TypeAdapter[Answer]) -> Answer:
        """Return what the process says to a message.

        Raises:
            AppFailedError: the code fails; the process ended, is silent past the time limit, does
                not stop, or says something else.
        """
        try:
            answer = answers.validate_json(self._exchange(_line(message)), strict=True)
        except ValidationError:
            raise self.no_measurement() from None
        if answer.refused is not None:
            raise InputError(answer.refused)
        if answer.failed is not None:
            raise AppFailedError(answer.failed)
        return answer

    def _exchange(self, request: bytes) -> bytes:
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
                    raise self.no_measurement()
        except TimeoutError:
            raise AppFailedError(
                f"the {self._what} did not answer within {self._time_limit:g} s, and there is no "
                "verdict; give it a longer time limit"
            ) from None
        except (BrokenPipeError, ConnectionResetError):
            raise AppFailedError(self._ended()) from None
        return bytes(received)

    def no_measurement(self) -> AppFailedError:
        """Return the error of an answer that is no measurement."""
        return AppFailedError(NO_MEASUREMENT.format(self._what))

    def _ended(self) -> str:
        """Say how the process ended, which it did without an answer."""
        try:
            status = self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            return (
                f"the {self._what}'s process closed its channel without an answer; there is no "
                "verdict"
            )
        how = f"with exit status {status}"
        if status < 0:
            how = f"by signal {-status}" + (", for want of memory perhaps" * (status == -9))
        return f"the {self._what}'s process ended {how} before it was measured; there is no verdict"


@contextlib.contextmanager
def started(
    module: str, what: str, time_limit: float, show: Callable[[str], None]
) -> Iterator[Channel]:
    """Start a process that ends with the block, and yield it.

    Args:
        module: that the process runs, with the number of its socket's descriptor as an argument.
        time_limit: in seconds, of every answer.
        show: called, in a thread, with every line that is printed there, of `LONGEST_LINE` bytes at
            most.
    """
    channel, theirs = socket.socketpair()
    with channel:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                env=WAITING | os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                # A group to kill; no terminal, which the code could write a verdict to.
                start_new_session=True,
            )
        assert process.stdout is not None
        relay = threading.Thread(target=_relay, args=[process.stdout, show], daemon=True)
        relay.start()
        try:
            yield Channel(what, channel, process, time_limit)
        finally:
            channel.close()  # it ends by itself then, unless its code holds it up
            relay.join(GRACE)
            with contextlib.suppress(ProcessLookupError):  # neither it nor what it started is left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def serve(answers: Callable[[bytes, Iterator[bytes]], Iterator[Reply]]) -> None:
    """Answer, in the process, until nobody asks any more. Its argument is the descriptor.

    Args:
        answers: takes the first message and the later ones, and yields an answer to each.
    """
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        channel.set_inheritable(False)
        try:
            with channel.makefile("rb") as asked:
                first = asked.readline()
                if not first:  # the audit ended before it asked for anything
                    return
                for answer in answers(first, asked):
                    channel.sendall(_line(answer))
        except InputError as error:
            channel.sendall(_line(Reply(refused=str(error))))
        except AppFailedError as error:
            channel.sendall(_line(Reply(failed=str(error))))
        except BrokenPipeError:  # the audit was interrupted, and says so
            return


def _line(message: object) -> bytes:
    """Return a message as a line of JSON, which has NaN and infinity."""
    return to_json(message, inf_nan_mode="constants") + b"\n"


def _relay(output: IO[bytes], show: Callable[[str], None]) -> None:
    """Show what the code prints, once for each line that differs by more than its numbers.

    An audit runs the code hundreds of times, and a progress bar writes over its line: of that the
    last state is shown, once for each description that bars have.
    """
    shown, pending = set[str](), b""

    def tell(line: bytes) -> None:
        text, kind = _worded(line)
        if kind not in shown and len(shown) < MOST_LINES:
            shown.add(kind)
            show(text)

    with output:
        while chunk := os.read(output.fileno(), 2**16):
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                tell(_last_state(line)[:LONGEST_LINE])
            pending = _last_state(pending)
            while len(pending) > LONGEST_LINE:
                tell(pending[:LONGEST_LINE])
                pending = pending[LONGEST_LINE:]
        if pending.strip():
            tell(pending)


def _last_state(line: bytes) -> bytes:
    """Return what is left of an unfinished line once a progress bar has written over it."""
    *before, last = line.split(b"\r")
    if not before:
        return line
    if last.strip():
        return b"\r" + last
    written = next((each for each in reversed(before) if each.strip()), b"")
    return b"\r" + written + b"\r"


def _worded(line: bytes) -> tuple[str, str]:
    """Return a line as it is shown, and what it has in common with others that are not.

    Of a progress bar that is its description alone: its units and what stands behind it change.
    """
    states = CONTROL.sub(b"", line).rstrip(b"\r").split(b"\r")
    last = next((each for each in reversed(states) if each.strip()), b"")
    text = last.decode(errors="replace").rstrip()
    bar = BAR.search(text)
    return text, re.sub(r"[\W\d_]+", "0", text[: bar.start()] + "|" if bar else text)


def set_seeds(seed: int) -> None:
    """Set the global seeds that an app's noise may come from: Python's, NumPy's, PyTorch's."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  (Flower draws its noise from it)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)
