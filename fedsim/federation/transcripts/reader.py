"""Readers of a transcript: as a whole, round by round, or while it is written."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from fedsim.federation.transcripts import folder
from fedsim.federation.transcripts.records import ObservedRound, Transcript


class Reader:
    """Reads a transcript round by round, to its current end. It may grow.

    Raises InputError if the folder is missing, damaged, or has no facts yet.

    Attributes:
        facts: facts of the recording.
        ended: whether the recorder has ended it, as far as it was read.
        incomplete: why rounds are missing, as the recorder says; "": nothing failed, so far.
    """

    def __init__(self, path: Path) -> None:
        self.facts, self._recording = folder.read_facts(path)
        self.ended, self.incomplete = False, ""
        self._path, self._read = path, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def rounds(self) -> Iterator[ObservedRound]:
        """Yield the rounds that were not read yet. Raises InputError for damage."""
        end = folder.read_end(self._path)  # of a growing one, before its rounds
        while folder.of_round(self._path, self._read + 1).exists():
            observed = folder.read_round(self._path, self._read + 1, self._recording)
            self._read += 1
            yield observed
        self.ended = end is not None and end == folder.read_end(self._path)  # else it goes on
        if end is not None and self.ended:
            folder.count(self._path)  # a later one may stand behind one that is missing
            folder.check_end(self._path, end, self._read)
            self.incomplete = end["incomplete"]

    @property
    def torn(self) -> int:
        """The number of bytes of rounds that killed writers had not written whole."""
        return sum(folder.torn(self._path).values())


def read_transcript(path: Path) -> Transcript:
    """Return a whole transcript. Raises InputError, which names the damaged file."""
    reader = Reader(path)
    rounds = tuple(reader.rounds())
    return Transcript(reader.facts, rounds, reader.ended, reader.incomplete, reader.torn)


def follow(
    path: Path, *, interval: float = 0.5, stop: Callable[[], bool] = lambda: False
) -> Iterator[ObservedRound]:
    """Yield the rounds of a growing transcript, to its end or until `stop` is True."""
    if not wait_for_facts(path, interval=interval, stop=stop):
        return
    reader = Reader(path)
    while True:
        stopping = stop()
        yield from reader.rounds()
        if reader.ended or stopping:
            return
        time.sleep(interval)


def wait_for_facts(
    path: Path, *, interval: float = 0.5, stop: Callable[[], bool] = lambda: False
) -> bool:
    """Wait until a transcript has its facts. Return False if `stop` returned True before that."""
    while not (path / folder.FACTS).exists():
        if not path.is_dir():
            folder.read_facts(path)  # which says what is wrong
        if stop():
            return False
        time.sleep(interval)
    return True


def has_ended(path: Path) -> bool:
    return folder.read_end(path) is not None
