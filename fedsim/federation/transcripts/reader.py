"""Readers of a transcript: as a whole, round by round, or while it is written."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from fedsim.federation.transcripts.framing import END, MAGIC, Scan, empty, opened
from fedsim.federation.transcripts.records import ObservedRound, Transcript


class Reader:
    """Reads a transcript round by round, to its current end. The file may grow.

    Raises InputError if the file is missing, damaged, or ends before its header.

    Attributes:
        facts: facts of the header.
        ended: whether the end record was read.
        incomplete: why rounds are missing, by the end record; "": nothing failed, so far.
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
        """Yield the whole rounds that were not read yet. Raises InputError for damage."""
        for record in self._scan.records():
            if record.kind == END:
                self.ended, self.incomplete = True, record.incomplete()
            else:
                yield record.round()

    @property
    def torn(self) -> int:
        """The number of bytes behind the last whole record that was read."""
        return os.fstat(self._file.fileno()).st_size - self._scan.position


def read_transcript(path: Path) -> Transcript:
    """Return a whole transcript. Raises InputError, which names the damaged record."""
    with Reader(path) as reader:
        rounds = tuple(reader.rounds())
        return Transcript(reader.facts, rounds, reader.ended, reader.incomplete, reader.torn)


def follow(
    path: Path, *, interval: float = 0.5, stop: Callable[[], bool] = lambda: False
) -> Iterator[ObservedRound]:
    """Yield the whole rounds of a growing transcript, to its end or until `stop` is True."""
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
    """Wait until a transcript has its header. Return False if `stop` returned True before that."""
    while True:
        with opened(path) as file:
            long_enough = os.fstat(file.fileno()).st_size >= len(MAGIC) + 4
            if long_enough and next(Scan(file, path).records(), None) is not None:
                return True
        if stop():
            return False
        time.sleep(interval)


def has_ended(path: Path) -> bool:
    with opened(path) as file:
        return any(record.kind == END for record in Scan(file, path).records(only=()))
