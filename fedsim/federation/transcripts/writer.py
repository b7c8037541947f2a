"""The writer of a transcript, round by round."""

import fcntl
import os
from pathlib import Path
from typing import Self

from adversaries.errors import InputError
from fedsim.common import private_files
from fedsim.federation.transcripts import folder
from fedsim.federation.transcripts.records import ObservedRound, TranscriptFacts


class Writer:
    """Adds rounds to a private folder (0700), a new one or one with the same facts.

    Raises InputError if the folder has other facts, is being written, or cannot be written.
    """

    def __init__(self, path: Path, facts: TranscriptFacts) -> None:
        self.path = private_files.as_named(path)
        self._count, self._recording = 0, ""
        try:
            foreign = path.exists() and not folder.is_empty(path)
            if foreign and not (path / folder.FACTS).exists():
                raise InputError(f"'{path}' is not a fedsim transcript; name another folder")
            private_files.make_directory(self.path)
            self._lock = private_files.opened_own(self.path / folder.LOCK, os.O_RDWR)
        except OSError as error:
            raise InputError(
                f"cannot write the transcript '{path}': {error.strerror}; name another folder"
            ) from None
        try:
            self._begin(facts)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, observed: ObservedRound) -> None:
        """Add one round, which is on the disk when this returns.

        Raises InputError if an array is not numeric.
        Raises OSError if it cannot be written; the folder then has no part of it.
        """
        if self._lock < 0:
            raise InputError(f"the transcript '{self.path}' is closed, so no round can follow")
        folder.write_round(self.path, self._count + 1, self._recording, observed)
        self._count += 1

    def end(self, incomplete: str = "", *, resumable: bool = False) -> None:
        """Note that the transcript has ended, so that only a resumable one may go on; close."""
        folder.write_end(self.path, self._count, incomplete, resumable)
        self.close()

    def close(self) -> None:
        """Let another writer continue."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _begin(self, facts: TranscriptFacts) -> None:
        """Take the folder for this writer, and note how many rounds it has."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                f"the transcript '{self.path}' is being written by another process; give every "
                "recorder its own folder"
            ) from None
        for part in folder.torn(self.path):
            part.unlink(missing_ok=True)
        if not (self.path / folder.FACTS).exists():
            self._recording = folder.write_facts(self.path, facts)
            return
        known, self._recording = folder.read_facts(self.path)
        if known != facts:
            raise InputError(
                f"the transcript '{self.path}' belongs to another recording; name another folder"
            )
        end = folder.read_end(self.path)
        if end is not None and not end["resumable"]:
            raise InputError(f"the transcript '{self.path}' has ended; name another folder")
        self._count = folder.count(self.path)
        if end is not None:
            folder.check_end(self.path, end, self._count)
            (self.path / folder.END).unlink()
