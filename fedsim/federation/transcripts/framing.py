"""The records of a transcript file, each with a SHA-256 checksum over it and all before it.

It has no key, so it does not protect against a party that rewrites the whole file.
"""

import hashlib
import io
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.federation.transcripts.encoding import text_of, unpacked, unpacked_round, whole_of
from fedsim.federation.transcripts.records import ObservedRound, TranscriptFacts

MAGIC = b"fedsim transcript\n"
VERSION = 1

# A record: kind, payload length, 8 bytes of a checksum of these two; the payload; its checksum.
# The short checksum distinguishes a damaged length from an unfinished record.
PREFIX = struct.Struct("<4sQ")
GUARD, DIGEST = 8, 32
HEADER, ROUND, END = b"HEAD", b"ROND", b"STOP"

LARGEST_RECORD = 2**36


@dataclass(frozen=True)
class Record:
    """A record with a valid checksum; its payload is empty where it was not read."""

    kind: bytes
    payload: memoryview
    place: str

    def facts(self) -> TranscriptFacts:
        """Return the facts of a header. Raises InputError for another or a malformed record."""
        text, _ = self._unpacked()
        try:
            if self.kind != HEADER:
                raise ValueError("it should be the header")
            return TranscriptFacts(
                **{name: text_of(text[name]) for name in ("vantage", "recorder", "app", "run")},
                node=None if text["node"] is None else whole_of(text["node"]),
                versions={
                    text_of(name): text_of(value) for name, value in text["versions"].items()
                },
            )
        except reading.DAMAGE as error:
            raise self._malformed(error) from None

    def incomplete(self) -> str:
        """Return why rounds are missing, by the end record; "": none are known to be missing.

        Raises InputError if it is malformed.
        """
        text, _ = self._unpacked()
        return str(text.get("incomplete", ""))

    def resumable(self) -> bool:
        """Return whether another writer may continue after the end record.

        Raises InputError if it is malformed.
        """
        text, _ = self._unpacked()
        return text.get("resumable") is True

    def round(self) -> ObservedRound:
        text, arrays = self._unpacked()
        try:
            return unpacked_round(text, arrays)
        except reading.DAMAGE as error:
            raise self._malformed(error) from None

    def _unpacked(self) -> tuple[dict[str, Any], list[npt.NDArray[Any]]]:
        try:
            return unpacked(self.payload)
        except reading.DAMAGE as error:
            raise self._malformed(error) from None

    def _malformed(self, error: Exception) -> InputError:
        return InputError(
            f"{self.place} is malformed: {reading.reason(error)}; it cannot be audited"
        )


class Scan:
    """Reads the whole records of a file in order, and remembers its position.

    Raises InputError if the file is no transcript, or of another version.

    Attributes:
        position: number of bytes up to the end of the last whole record.
        digest: checksum of that record.
    """

    def __init__(self, file: io.FileIO, path: Path) -> None:
        self._file, self._path, self._count, self._ended = file, path, 0, False
        expected = beginning()
        start = start_of(file)
        if start[: len(MAGIC)] != MAGIC:
            raise InputError(
                f"'{path}' is not a fedsim transcript; give a file that a recorder of fedsim wrote"
            )
        (version,) = struct.unpack("<I", start[len(MAGIC) :].ljust(4, b"\0"))
        if version != VERSION:
            raise InputError(
                f"the transcript '{path}' has version {version}; this fedsim reads version "
                f"{VERSION}: use the fedsim that wrote it, or a newer one"
            )
        self.position, self.digest = len(expected), hashlib.sha256(expected).digest()

    def records(self, only: Sequence[bytes] = (HEADER, ROUND, END)) -> Iterator[Record]:
        """Yield the whole records from the current position on.

        A record that its writer cuts off in the meantime counts as unfinished.

        only: kinds whose payloads are read and checked. Skipping the others is faster.
        Raises InputError if a record is damaged or out of place.
        """
        size = os.fstat(self._file.fileno()).st_size
        overhead = PREFIX.size + GUARD
        while size - self.position >= overhead:
            place = f"record {self._count} of '{self._path}'"
            self._file.seek(self.position)
            start = _read(self._file, PREFIX.size + GUARD)
            if len(start) < PREFIX.size + GUARD:
                return
            prefix, stored_guard = bytes(start[: PREFIX.size]), bytes(start[PREFIX.size :])
            if stored_guard != guard(self.digest, prefix):
                raise self._damaged(place)
            kind, length = PREFIX.unpack(prefix)
            if length > LARGEST_RECORD or kind not in (HEADER, ROUND, END):
                raise self._damaged(place)
            if (kind == HEADER) != (self._count == 0) or self._ended:
                raise InputError(f"{place} is out of order; the transcript cannot be audited")
            if size - self.position < overhead + length + DIGEST:
                return  # unfinished
            payload = memoryview(b"")
            if kind in only:
                payload = _read(self._file, length)
            else:
                self._file.seek(length, os.SEEK_CUR)
            stored = bytes(_read(self._file, DIGEST))
            if len(stored) < DIGEST:
                return
            if kind in only:
                fits = hashlib.sha256(self.digest + prefix)
                fits.update(payload)
                if stored != fits.digest():
                    raise self._damaged(place)
            self.digest = stored
            self.position += overhead + length + DIGEST
            self._count += 1
            self._ended = kind == END
            yield Record(kind, payload, place)

    def _damaged(self, place: str) -> InputError:
        return InputError(
            f"{place} is damaged (byte {self.position}): its checksum does not match; "
            "restore the file from a copy"
        )


def opened(path: Path) -> io.FileIO:
    """Return a file opened to read, unbuffered: a buffer would keep bytes that a writer cut off."""
    try:
        return path.open("rb", buffering=0)
    except OSError as error:
        raise InputError(f"cannot read the transcript '{path}': {error.strerror}") from None


def empty(path: Path) -> InputError:
    return InputError(f"the transcript '{path}' ends before its header; nothing was recorded")


def beginning() -> bytes:
    return MAGIC + struct.pack("<I", VERSION)


def start_of(file: io.FileIO) -> bytes:
    """Return the bytes of a file where `beginning` must be; fewer in a shorter file."""
    file.seek(0)
    return bytes(_read(file, len(MAGIC) + 4))


def _read(file: io.FileIO, length: int) -> memoryview:
    """Return a number of bytes, or fewer at the end of the file; a system call may read some."""
    buffer = memoryview(bytearray(length))
    filled = 0
    while filled < length:
        count = file.readinto(buffer[filled:])
        if not count:
            break
        filled += count
    return buffer[:filled].toreadonly()


def write_bytes(file: io.FileIO, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def guard(digest: bytes, prefix: bytes) -> bytes:
    """Return the short checksum of a record's prefix."""
    return hashlib.sha256(digest + prefix).digest()[:GUARD]
