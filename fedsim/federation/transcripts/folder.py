"""A transcript as a folder: its facts, a file for each round, and why it ended.

Every file is written whole or not at all. There is no key, so nothing protects against a party that
writes another folder.
"""

import contextlib
import hashlib
import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from adversaries.errors import InputError
from fedsim.common import private_files, reading
from fedsim.federation.transcripts.encoding import Places, complaint, packed_round, unpacked_round
from fedsim.federation.transcripts.records import ObservedRound, TranscriptFacts

SUFFIX = ".fedt"
FACTS, END, LOCK = "facts.json", "end.json", "lock"
VERSION = 3

CHECKSUM = "sha256"
MOST_ARRAYS = 65_000
"""In a round: more would need another kind of archive."""

Schema = TypeVar("Schema", bound=BaseModel)

TEXT = "text"
"""Array of a round's file with its JSON, as bytes."""


def holds_several(path: Path) -> bool:
    """Return whether a path is that of a folder of transcripts, rather than of one."""
    return path.is_dir() and path.suffix != SUFFIX and not (path / FACTS).exists()


def is_empty(path: Path) -> bool:
    """Return whether nothing was recorded in a folder, though a writer may have locked it."""
    return path.is_dir() and all(
        each.name == LOCK or each.name.endswith(private_files.PARTIAL) for each in path.iterdir()
    )


def of_round(path: Path, number: int) -> Path:
    """Return the path of a round's file; the first has the number 1."""
    return path / f"{number:06}.npz"


def count(path: Path) -> int:
    """Return the number of rounds of a transcript that is not being written.

    Raises InputError if one before another is missing.
    """
    numbers = {int(each.stem) for each in path.glob("*.npz") if each.stem.isdecimal()}
    for number in range(1, len(numbers) + 1):
        if number not in numbers:
            name = of_round(path, number).name
            raise InputError(
                f"the transcript '{path}' has no {name}; restore the folder from a copy"
            )
    return len(numbers)


def digest(path: Path, number: int) -> str:
    """Return the SHA-256 of a round's file, which the next file names; 0: of the facts."""
    file = of_round(path, number) if number else path / FACTS
    with reading.damage(lambda why: _malformed(file, why)), reading.opened(file) as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


class _Facts(BaseModel):
    """The content of facts.json."""

    model_config = ConfigDict(strict=True)

    vantage: str
    recorder: str
    app: str
    node: int | None
    run: str
    versions: Places


class End(BaseModel):
    """How a transcript ended: its rounds, the digest of the last, and why others are missing.

    resumable: whether another writer may continue.
    """

    model_config = ConfigDict(strict=True)

    rounds: int
    last: str
    incomplete: str
    resumable: bool


def write_facts(path: Path, facts: TranscriptFacts) -> None:
    """Write the facts of a new transcript."""
    text = {"version": VERSION, **vars(facts), "versions": dict(facts.versions)}
    _write(path / FACTS, text)


def read_facts(path: Path) -> TranscriptFacts:
    """Return the facts of a transcript. Raises InputError if they are missing or malformed."""
    try:
        recorded, exists = (path / FACTS).exists(), path.exists()
        empty = not recorded and is_empty(path)
    except OSError as error:  # of another account
        raise InputError(f"cannot read the transcript '{path}': {error.strerror}") from None
    if not exists:
        raise InputError(f"cannot read the transcript '{path}': there is no such folder")
    if empty:
        raise InputError(f"nothing was recorded in the transcript '{path}'")
    if not recorded:
        raise InputError(
            f"'{path}' is not a fedsim transcript; give a folder that a recorder of fedsim wrote"
        )
    with reading.damage(lambda why: _malformed(path / FACTS, why)):
        text = _read(path / FACTS)
        if text.get("version") != VERSION:
            raise InputError(
                f"the transcript '{path}' has version {text.get('version')}; this fedsim reads "
                f"version {VERSION}: use the fedsim that wrote it, or a newer one"
            )
        return TranscriptFacts(**dict(_validated(_Facts, text)))


def write_round(path: Path, number: int, observed: ObservedRound, before: str) -> None:
    """Write a round. Raises InputError for arrays that are not numeric, or too many; OSError."""
    text, arrays = packed_round(observed, before, number)
    if len(arrays) > MOST_ARRAYS:
        raise InputError(f"a round of {len(arrays)} arrays is too large for a transcript")
    content: dict[str, Any] = {TEXT: np.frombuffer(text, np.uint8), **arrays}
    with private_files.replacing(of_round(path, number)) as file:
        np.savez(file, **content)


def read_round(path: Path, number: int, before: str) -> ObservedRound:
    """Return a round. Raises InputError if its file is damaged, malformed, or another's."""
    file = of_round(path, number)
    with reading.damage(lambda why: _malformed(file, why)):
        arrays = reading.arrays(file)
        content = arrays.pop(TEXT)
        if content.nbytes > reading.MOST_JSON:
            raise ValueError(f"its text has more than {reading.MOST_JSON} bytes")
        return unpacked_round(content.tobytes(), arrays, before, number)


def write_end(path: Path, end: End) -> None:
    _write(path / END, vars(end))


def read_end(path: Path) -> End | None:
    """Return how a transcript ended; None: it has not. Raises InputError if it is malformed."""
    with reading.damage(lambda why: _malformed(path / END, why)):
        try:
            return _validated(End, _read(path / END))
        except FileNotFoundError:
            return None


def check_end(path: Path, end: End, rounds: int, last: str) -> None:
    """Raise InputError if an ended transcript has other rounds than when it ended."""
    if end.rounds == rounds and end.last != last:
        raise _malformed(path / END, "another round was the last one when it ended")
    if end.rounds != rounds:
        raise _malformed(path / END, f"it names {end.rounds} rounds, but there are {rounds}")


def torn(path: Path) -> dict[Path, int]:
    """Return the files that killed writers had not written whole, with their sizes."""
    found = dict[Path, int]()
    for each in path.glob(f".*{private_files.PARTIAL}"):
        with contextlib.suppress(OSError):  # a living writer has renamed it
            status = each.lstat()
            found |= {each: status.st_size} if stat.S_ISREG(status.st_mode) else {}
    return found


def _write(file: Path, text: Mapping[str, Any]) -> None:
    """Write values as JSON, with a checksum of them."""
    private_files.write_private(file, _encoded({**text, CHECKSUM: _digest(text)}))


def _read(file: Path) -> dict[str, Any]:
    """Return values from JSON. Raises ValueError if they do not fit their checksum."""
    text = reading.json_object(file)
    if text.pop(CHECKSUM, "") != _digest(text):
        raise ValueError("its checksum does not match")
    return text


def _validated(schema: type[Schema], text: Mapping[str, Any]) -> Schema:
    try:
        return schema.model_validate(text)
    except ValidationError as error:
        raise ValueError(complaint(error)) from None


def _digest(text: Mapping[str, Any]) -> str:
    return hashlib.sha256(_encoded(text)).hexdigest()


def _encoded(text: Mapping[str, Any]) -> bytes:
    return json.dumps(text, allow_nan=False, separators=(",", ":")).encode()


def _malformed(file: Path, why: str) -> InputError:
    return InputError(
        f"'{file.name}' of the transcript '{file.parent}' is damaged: {why}; restore it from a copy"
    )
