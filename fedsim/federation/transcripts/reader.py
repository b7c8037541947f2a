"""Reading a transcript: whole, round by round, or while it is written."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from fedsim.federation.transcripts.framing import END, MAGIC, Scan, empty, opened
from fedsim.federation.transcripts.records import ObservedRound, Transcript


class Reader:
    """Reads a transcript round by round, as far as it goes; it may be growing.

    Raises InputError if the file is missing, damaged, or ends before its header.

    Attributes:
        facts: of the header.
        ended: as of `Transcript`, of what was read so far.
        incomplete: as of `Transcript`, of what was read so far.
    """

    def __init__(self, path: Path) -> None:
        self._file = opened(path)
        self.ended, self.incomplete = False, ""
        try:
            self._scan = Scan(self._file, path)
            header = next(self._scan.records(), None)
            if header is None:
                raise empty(path)
            self.facts = header.facts()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def rounds(self) -> Iterator[ObservedRound]:
        """Yield the whole rounds that were not read yet.

        Raises InputError if a record is damaged; the message names it.
        """
        for record in self._scan.records():
            if record.kind == END:
                self.ended, self.incomplete = True, record.incomplete()
            else:
                yield record.round()

    @property
    def torn(self) -> int:
        """How many bytes lie behind the last whole record that was read."""
        return os.fstat(self._file.fileno()).st_size - self._scan.position


def read(path: Path) -> Transcript:
    """Return a whole transcript. A torn last record is dropped, and counted in `torn`.

    Raises InputError if it is missing or damaged; the message names the record.
    """
    with Reader(path) as reader:
        rounds = tuple(reader.rounds())
        return Transcript(reader.facts, rounds, reader.ended, reader.incomplete, reader.torn)


def follow(
    path: Path, *, interval: float = 0.5, stop: Callable[[], bool] = lambda: False
) -> Iterator[ObservedRound]:
    """Yield the rounds of a transcript that is being written, each as soon as it is whole.

    Ends when the recorder says so, or when it is to stop and nothing whole is left.

    interval: between two looks, in seconds.
    stop: returns True when following is to stop.
    """
    if not wait_for_header(path, interval=interval, stop=stop):
        return
    with Reader(path) as reader:
        while True:
            stopping = stop()
            yield from reader.rounds()
            if reader.ended or stopping:
                return
            time.sleep(interval)


def wait_for_header(
    path: Path, *, interval: float = 0.5, stop: Callable[[], bool] = lambda: False
) -> bool:
    """Wait until a transcript has its header.

    interval: between two looks, in seconds.
    stop: returns True when waiting is to stop.
    Returns: false if it stopped before that.
    """
    while True:
        with opened(path) as file:
            long_enough = os.fstat(file.fileno()).st_size >= len(MAGIC) + 4
            if long_enough and next(Scan(file, path).records(), None) is not None:
                return True
        if stop():
            return False
        time.sleep(interval)


def has_ended(path: Path) -> bool:
    """Return whether a recorder said that nothing follows."""
    with opened(path) as file:
        return any(record.kind == END for record in Scan(file, path).records(only=()))
