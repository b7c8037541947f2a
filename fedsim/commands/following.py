"""`fedsim audit --follow`: a transcript while it is written, and the end of its run."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from adversaries.errors import InputError, InterruptedRunError
from fedsim.federation.transcripts.folder import FACTS, SUFFIX
from fedsim.federation.transcripts.reader import has_ended

INTERVAL = 0.5
DEAD = (
    "no new data for {:g} s. The report covers the run so far; the same command goes on if more "
    "data arrive"
)


class Watch:
    """Decides when to stop waiting for a run: `stop` of `federation.transcripts.reader.follow`.

    Waiting stops when `stopping` is set, or when the transcript has not grown for `patience`
    seconds. Then `left` says why the run was left before its end; it is "" otherwise.
    """

    def __init__(self, path: Path, patience: float, stopping: threading.Event) -> None:
        self.path, self.left = path, ""
        self._patience, self._stopping = patience, stopping
        self._size, self._grew = _size(path), time.monotonic()

    def __call__(self) -> bool:
        """Return whether to stop once all data so far are read."""
        size, now = _size(self.path), time.monotonic()
        if size != self._size:
            self._size, self._grew = size, now
        elif now - self._grew >= self._patience:
            self.left = DEAD.format(self._patience)
        return self._stopping.is_set() or bool(self.left)


def newest(folder: Path) -> Path:
    """Return the transcript in a folder that was written last. Raises InputError if none exists."""
    transcripts = list(folder.glob(f"*{SUFFIX}"))
    if not transcripts:
        raise InputError(
            f"'{folder}' holds no transcript, and no Flower app with its pyproject.toml; name one "
            "of them, or the folder that is the transcript-path of an auditor's node"
        )
    return max(transcripts, key=_changed)


def growing(folder: Path, stopping: threading.Event) -> Path:
    """Return the newest transcript of a folder that has not ended, or the next one that begins.

    Raises InterruptedRunError if `stopping` is set before one begins.
    """
    while not stopping.is_set():
        going_on = [each for each in folder.glob(f"*{SUFFIX}") if not _has_ended(each)]
        if going_on:
            return max(going_on, key=_changed)
        stopping.wait(INTERVAL)
    raise InterruptedRunError(f"interrupted; no run began in '{folder}'")


@contextmanager
def interrupted() -> Iterator[threading.Event]:
    """Yield an event that the first SIGINT or SIGTERM sets; a second signal acts as usual."""
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _has_ended(path: Path) -> bool:
    return (path / FACTS).exists() and has_ended(path)


def _size(path: Path) -> int:
    """Return the number of files of a transcript."""
    try:
        return sum(1 for _ in path.iterdir())
    except OSError:  # deleted meanwhile, or no transcript
        return 0


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
