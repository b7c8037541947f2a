"""`fedsim audit --follow`: follow one run after another, and leave runs that have stopped."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console

from adversaries.errors import InputError
from fedsim.federation.transcripts.folder import SUFFIX, holds_several
from fedsim.federation.transcripts.reader import has_ended

INTERVAL = 0.5
DEAD = (
    "no new data for {:g} s. The report covers the run so far; fedsim writes it again if more data "
    "arrive"
)
SUPERSEDED = "another run began before this one ended. The report covers the run so far"


class Watch:
    """Decides when to stop waiting for a run: `stop` of `federation.transcripts.reader.follow`.

    Waiting stops when `stopping` is set, when the transcript has not grown for `patience` seconds,
    or when another run has begun in `folder`. Then `left` says why the run was left before its
    end; it is "" if the run ended or `stopping` was set.
    """

    def __init__(
        self, path: Path, patience: float, stopping: threading.Event, folder: Path | None = None
    ) -> None:
        self.path, self.left = path, ""
        self._patience, self._stopping, self._folder = patience, stopping, folder
        self._earlier = _transcripts(folder)
        self.size, self._grew = _size(path), time.monotonic()

    def __call__(self) -> bool:
        """Return whether to stop once all data so far are read."""
        size, now = _size(self.path), time.monotonic()
        if size != self.size:
            self.size, self._grew = size, now
        elif _transcripts(self._folder) - self._earlier:
            self.left = SUPERSEDED
        elif now - self._grew >= self._patience:
            self.left = DEAD.format(self._patience)
        return self._stopping.is_set() or bool(self.left)


def newest(folder: Path) -> Path:
    """Return the transcript in a folder that was written last. Raises InputError if none exists."""
    transcripts = _transcripts(folder)
    if not transcripts:
        raise InputError(
            f"'{folder}' holds no transcript, and no Flower app with its pyproject.toml; name one "
            "of them, or the folder that is the transcript-path of an auditor's node"
        )
    return max(transcripts, key=_changed)


def follow(
    place: Path,
    once: bool,
    patience: float,
    audit: Callable[[Path, Watch], int],
    console: Console,
    unaudited: int,
) -> int:
    """Audit a transcript, or all of a folder from the newest on, while they are written.

    SIGINT or SIGTERM stops it; the report then covers the rounds so far. Returns the largest exit
    status of all audits, or `unaudited` without any. Raises InputError if the patience, in seconds,
    is not above 0, or if `audit` raised it and no other run can follow.
    """
    if not patience > 0:
        raise InputError(f"--patience is {patience:g}; give a number of seconds above 0")
    console.print(f"Following {place}; Ctrl-C ends it", soft_wrap=True, highlight=False)
    statuses = []
    with _interrupted() as stopping:
        for watch in _runs(place, patience, stopping):
            try:
                statuses.append(audit(watch.path, watch))
                # The run may have ended at the last moment.
                why = "" if watch.left and has_ended(watch.path) else watch.left
            except InputError as error:
                if once or watch.path == place:
                    raise
                statuses.append(unaudited)
                why = str(error)
            if why:
                console.print(f"{watch.path.name}: {why}", soft_wrap=True, highlight=False)
            if once:
                break
    return max(statuses, default=unaudited)


def _runs(place: Path, patience: float, stopping: threading.Event) -> Iterator[Watch]:
    """Yield a watch for a transcript, or for each that grows in a folder, until `stopping`."""
    if not holds_several(place):
        yield Watch(place, patience, stopping)
        return
    audited = {path: _size(path) for path in _transcripts(place)}
    if audited:
        del audited[newest(place)]
    while not stopping.is_set():
        grown = [path for path in _transcripts(place) if _size(path) != audited.get(path)]
        if not grown:
            stopping.wait(INTERVAL)
            continue
        watch = Watch(max(grown, key=_changed), patience, stopping, place)
        yield watch
        # A run that was left early may have grown since then.
        audited[watch.path] = watch.size if watch.left else _size(watch.path)


@contextmanager
def _interrupted() -> Iterator[threading.Event]:
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


def _transcripts(folder: Path | None) -> set[Path]:
    return set() if folder is None else set(folder.glob(f"*{SUFFIX}"))


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
