"""The writer of a transcript, round by round."""

import fcntl
import hashlib
import io
import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import private_files
from fedsim.federation.transcripts.encoding import LARGEST_TEXT, facts_to_json, packed_round
from fedsim.federation.transcripts.framing import (
    END,
    HEADER,
    LARGEST_RECORD,
    MAGIC,
    PREFIX,
    ROUND,
    Scan,
    beginning,
    guard,
    start_of,
    write_bytes,
)
from fedsim.federation.transcripts.records import ObservedRound, TranscriptFacts


class Writer:
    """Appends rounds to a private file (0600), a new one or one with the same facts.

    Raises InputError if the file has other facts, or cannot be written.
    """

    def __init__(self, path: Path, facts: TranscriptFacts) -> None:
        self.path = path
        try:
            descriptor = private_files.opened_own(private_files.as_named(path), os.O_RDWR)
        except OSError as error:
            raise InputError(
                f"cannot write the transcript '{path}': {error.strerror}; name another file"
            ) from None
        # Unbuffered, so that no part of a failed record is written later.
        self._file: io.FileIO = os.fdopen(descriptor, "r+b", buffering=0)
        try:
            self._lock()
            self._position, self._digest = self._continued(facts)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, observed: ObservedRound) -> None:
        """Append one round.

        Raises InputError if an array is not numeric, or the record too large.
        Raises OSError if it cannot be written; the file is then unchanged.
        """
        self._append(ROUND, *packed_round(observed))

    def end(self, incomplete: str = "", *, resumable: bool = False) -> None:
        """Write the end record, behind which a resumable transcript may continue; close."""
        self._append(END, {"incomplete": incomplete, "resumable": resumable}, [])
        self.close()

    def close(self) -> None:
        """Close the file; it may be continued."""
        self._file.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                f"the transcript '{self.path}' is being written by another process; give every "
                "recorder its own file"
            ) from None

    def _continued(self, facts: TranscriptFacts) -> tuple[int, bytes]:
        """Return where to write and the checksum before it; write the header of a new file."""
        if self._file.seek(0, os.SEEK_END) < len(MAGIC) + 4:
            # A new file, or a writer was killed within its first bytes.
            expected = beginning()
            if not expected.startswith(start_of(self._file)):
                raise InputError(f"'{self.path}' is not a fedsim transcript; name another file")
            self._file.seek(0)
            write_bytes(self._file, expected)
            self._file.truncate()
            self._position, self._digest = len(expected), hashlib.sha256(expected).digest()
            self._append(HEADER, facts_to_json(facts), [])
            return self._position, self._digest
        scan = Scan(self._file, self.path)
        position, digest = scan.position, scan.digest
        stored: TranscriptFacts | None = None
        for record in scan.records(only=(HEADER, END)):
            if record.kind == END:
                if not record.resumable():
                    raise InputError(f"the transcript '{self.path}' has ended; name another file")
                break
            if record.kind == HEADER:
                stored = record.facts()
            position, digest = scan.position, scan.digest
        if stored is not None and stored != facts:
            raise InputError(
                f"the transcript '{self.path}' belongs to another recording; name another file"
            )
        self._file.seek(position)
        self._file.truncate()
        self._position, self._digest = position, digest
        if stored is None:
            self._append(HEADER, facts_to_json(facts), [])
        return self._position, self._digest

    def _append(self, kind: bytes, text: Mapping[str, Any], arrays: list[npt.NDArray[Any]]) -> None:
        document = json.dumps(text, allow_nan=False, separators=(",", ":")).encode()
        pieces = [struct.pack("<Q", len(document)), document]
        pieces += [array.tobytes() for array in arrays]
        length = sum(len(piece) for piece in pieces)
        if length > LARGEST_RECORD or len(document) > LARGEST_TEXT:
            raise InputError(f"a record of {length} bytes is too large for a transcript")
        prefix = PREFIX.pack(kind, length)
        digest = hashlib.sha256(self._digest + prefix)
        try:
            self._file.seek(self._position)
            write_bytes(self._file, prefix + guard(self._digest, prefix))
            for piece in pieces:
                digest.update(piece)
                write_bytes(self._file, piece)
            write_bytes(self._file, digest.digest())
            os.fsync(self._file.fileno())
        except BaseException:
            # A full disk, or Ctrl-C. Cut the torn record off, so that no shorter one is written
            # into it.
            os.ftruncate(self._file.fileno(), self._position)
            raise
        self._position = self._file.tell()
        self._digest = digest.digest()
