"""The processes of a service, which its one parent watches and starts again when they end.

The parent is `fedsim deploy superlink` or `fedsim deploy supernode`. Its children end with it,
however it ends.
"""

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from fedsim.common.parent import end_with_parent

log = logging.getLogger(__name__)

PAUSE = 5.0
"""Seconds between the end of a process and its next start."""

LONGEST_END = 10.0
"""Seconds in which a process must end after SIGTERM."""


LARGEST = 10 << 20
"""Bytes after which a log becomes NAME.log.1 and replaces an older one."""

LOGS_INTERVAL = 600.0
"""Seconds between looks at the logs' sizes; start.sh waits for a line of a log for less."""


@dataclass
class Part:
    """A process of a service.

    Attributes:
        name: its name in messages.
        command: returns the command line, at each start.
        environment: of the process.
    """

    name: str
    command: Callable[[], Sequence[str]]
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    start_at: float = field(default=0.0, init=False)

    def start(self) -> None:
        command, before = self.command(), end_with_parent
        # Between fork and exec it makes one system call, and takes no lock.
        self.process = subprocess.Popen(command, env=self.environment, preexec_fn=before)  # noqa: PLW1509


class _Line(logging.Formatter):
    """One line: time (ISO 8601, UTC), machine, level, message."""

    def __init__(self, machine: str) -> None:
        super().__init__(f"%(asctime)s {machine} %(levelname)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")

    def format(self, record: logging.LogRecord) -> str:
        return " | ".join(super().format(record).splitlines())


def log_as(machine: str) -> None:
    """Log to standard error, in lines that a collector can parse."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Line(machine))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("fedsim").setLevel(logging.INFO)


def shorten(folder: Path) -> None:
    """Copy long logs away and empty them. Their writers continue, since start.sh appends.

    A log that cannot be copied stays, with a warning: no service may fail over its log.
    """
    for path in folder.glob("*.log"):
        try:
            if path.stat().st_size > LARGEST:
                shutil.copyfile(path, path.with_name(f"{path.name}.1"))
                os.truncate(path, 0)
        except OSError as error:
            log.warning("cannot shorten %s: %s", path.name, error)


class Service:
    """The parts of a service, while it runs. A part that ends takes the later ones along.

    logs: the folder of the machine's logs, which are kept short.
    """

    def __init__(self, parts: Sequence[Part], logs: Path) -> None:
        self._parts, self._logs = parts, logs
        self._shorten_at = time.monotonic() + LOGS_INTERVAL

    def __enter__(self) -> Self:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        return self

    def __exit__(self, *_: object) -> None:
        self._end_from(0)

    def watch(self) -> bool:
        """Start parts that are due; return whether all parts live.

        A part that has ended is reported in one sentence.
        """
        now = time.monotonic()
        if now >= self._shorten_at:
            self._shorten_at = now + LOGS_INTERVAL
            shorten(self._logs)
        for index, part in enumerate(self._parts):
            if part.process is not None and (status := part.process.poll()) is not None:
                self.restart(index, f"{part.name} {ending(status)}")
            if part.process is None:
                if now < part.start_at:
                    return False
                try:
                    part.start()
                except OSError as error:  # a full disk, for example
                    self.restart(index, f"{part.name} cannot start ({error})")
                    return False
        return True

    def restart(self, index: int, why: str) -> None:
        """End a part and those after it, say why in one sentence, and start them again later."""
        log.error("%s; it starts again in %g s", why, PAUSE)
        self._end_from(index)
        for part in self._parts[index:]:
            part.start_at = time.monotonic() + PAUSE

    def _end_from(self, index: int) -> None:
        """End the living parts from an index on: politely, and by force after LONGEST_END."""
        living = [part.process for part in self._parts[index:] if part.process is not None]
        for process in living:
            process.terminate()
        deadline = time.monotonic() + LONGEST_END
        for process in living:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for part in self._parts[index:]:
            part.process = None


def ending(status: int) -> str:
    """Return how a process ended, from its status: negative for the number of a signal."""
    if status >= 0:
        return f"ended with status {status}"
    names = {each.value: each.name for each in signal.Signals}
    return f"was killed by signal {-status} ({names.get(-status, 'a real-time signal')})"
