"""`fedsim audit live`: one run after another, and no waiting for one that shows no life."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console

from adversaries.errors import InputError
from fedsim.federation.transcripts.reader import has_ended

PATIENCE = 600.0
"""Seconds without a sign of life after which a run is taken for dead, unless somebody says."""

INTERVAL = 0.5
"""Seconds between two looks at a folder."""

DEAD = "no sign of life for {:g} s: it is reported as far as it came, and again if it goes on"
SUPERSEDED = "another run began before it ended: it is reported as far as it came"


class Watch:
    """Tells when a run is waited for no more: `stop` of `federation.transcripts.reader.follow`.

    That is when somebody asked to stop, when its transcript has not grown for `patience` seconds,
    or when another run has begun in its folder (None: in none). left: why it was left before its
    end; "" if it ended or somebody asked
    """

    def __init__(
        self, path: Path, patience: float, asked: threading.Event, folder: Path | None = None
    ) -> None:
        self.path, self.left = path, ""
        self._patience, self._asked, self._folder = patience, asked, folder
        self._known = _transcripts(folder)
        self.size, self._grew = _size(path), time.monotonic()

    def __call__(self) -> bool:
        """Whether to stop once all that is there was read."""
        size, now = _size(self.path), time.monotonic()
        if size != self.size:
            self.size, self._grew = size, now
        elif _transcripts(self._folder) - self._known:
            self.left = SUPERSEDED
        elif now - self._grew >= self._patience:
            self.left = DEAD.format(self._patience)
        return self._asked.is_set() or bool(self.left)


def newest(folder: Path) -> Path:
    """Return the transcript in a folder that was written to last. Raises InputError for none."""
    found = _transcripts(folder)
    if not found:
        raise InputError(
            f"'{folder}' holds no transcript; name the folder that an auditor's node has as its "
            "transcript-path"
        )
    return max(found, key=_changed)


def follow(
    place: Path,
    once: bool,
    patience: float,
    audit: Callable[[Path, Watch], int],
    console: Console,
    unaudited: int,
) -> int:
    """Audit a transcript, or one after another in a folder, while they are written.

    SIGINT and SIGTERM end the following, and what was seen is reported.

    Args:
        place: a transcript, or a folder whose newest is audited first.
        patience: seconds without a sign of life after which a run is taken for dead, above 0.
        audit: audits the transcript at a path until its watch says stop, and returns the exit
            status.
        unaudited: the exit status of a transcript that cannot be audited, and of none.

    Returns:
        The largest exit status of all that were audited.

    Raises:
        InputError: the patience is impossible, or `audit` raised it and no other run would follow.
    """
    if not patience > 0:
        raise InputError(f"--patience is {patience:g}; give a number of seconds above 0")
    console.print(f"Following {place}; Ctrl-C ends it", soft_wrap=True, highlight=False)
    statuses = []
    with _stopping() as asked:
        for watch in _runs(place, patience, asked):
            try:
                statuses.append(audit(watch.path, watch))
                # It may have ended at the last moment.
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


def _runs(place: Path, patience: float, asked: threading.Event) -> Iterator[Watch]:
    """Yield a file, or what is written in a folder from its newest transcript on, until asked."""
    if not place.is_dir():
        yield Watch(place, patience, asked)
        return
    audited = {path: _size(path) for path in _transcripts(place)}
    if audited:
        del audited[newest(place)]
    while not asked.is_set():
        grown = [path for path in _transcripts(place) if _size(path) != audited.get(path)]
        if not grown:
            asked.wait(INTERVAL)
            continue
        watch = Watch(max(grown, key=_changed), patience, asked, place)
        yield watch
        # A run that was left may have gone on since the last look.
        audited[watch.path] = watch.size if watch.left else _size(watch.path)


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Turn the first SIGINT or SIGTERM into a wish to stop; a second one is for who insists."""
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        asked.set()
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _transcripts(folder: Path | None) -> set[Path]:
    return set() if folder is None else set(folder.glob("*.fedt"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # deleted meanwhile
        return 0


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
