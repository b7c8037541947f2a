"""The process that answers a message at a node, from its start to its end.

On a busy machine a process may need minutes to start. Flower gives a process up that sends no
heartbeat within 30 seconds, and hands its task out again. So the program that starts processes
sends the heartbeats while its process lives, and kills a process that takes too long.
"""

import logging
import os
import signal
import subprocess
import time
from contextlib import suppress

import httpx

from fedsim.federation.runtimes.flower_services import Runtime

log = logging.getLogger(__name__)

BEAT_INTERVAL = 10.0
"""Seconds between two heartbeats. Flower gives a task up after 30 seconds at first, then 60."""

SLOW = 60.0
"""Seconds after which the log mentions a busy process; the time doubles with each line."""

GRACE = 60.0
"""Seconds in which a process must end after its answer was sent, or after it was killed."""


class Answering:
    """A process that answers one message within a deadline in seconds, with its child processes."""

    def __init__(self, process: subprocess.Popen[bytes], token: str, deadline: float) -> None:
        now = time.monotonic()
        self.process = process
        self._token = token
        self._deadline = deadline
        self._begun, self._end = now, now + deadline
        self._next_beat, self._next_line = now, now + SLOW
        self._claimed = True

    def goes_on(self, runtime: Runtime) -> bool:
        """Return whether the process lives. If it does, keep its claim; else end its children."""
        if (status := self.process.poll()) is not None:
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
            log.warning(busy, self.process.pid, now - self._begun)
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
            os.killpg(self.process.pid, signal.SIGKILL)

    def _kill_late(self, now: float) -> None:
        late = "process %d is killed: it did not end within %.0f s"
        log.error(late, self.process.pid, now - self._begun)
        self.kill()
        self._claimed = False  # so that the server learns it, even if the process survives
        self._end = now + GRACE  # a process that waits for a disk survives for a while

    def _beat(self, runtime: Runtime, now: float) -> None:
        try:
            self._claimed = runtime.keep(self._token)
        except httpx.HTTPError as error:
            log.warning("the SuperNode takes no heartbeat: %s", error)
        if not self._claimed:
            # The message was answered, or given up. The process can achieve nothing more.
            self._end = min(self._end, now + GRACE)

    def _fail(self, runtime: Runtime, status: int) -> None:
        log.warning("process %d ended with status %d", self.process.pid, status)
        late = time.monotonic() - self._begun > self._deadline
        reason = (
            f"no answer within {self._deadline:.0f} s, the node's DEADLINE"
            if late
            else "its process ended before it read the message"
        )
        # A process that read the message has answered it, or Flower answers with an error.
        with suppress(httpx.HTTPError, RuntimeError):
            runtime.fail(self._token, reason)
