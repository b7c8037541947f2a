"""A transcript as a folder: its facts, a file for each round, and why it ended.

Every file is written whole or not at all. There is no key, so nothing protects against a party that
writes another folder.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from adversaries.errors import InputError
from fedsim.common import private_files, reading
from fedsim.federation.transcripts.encoding import (
    packed_round,
    text_of,
    unpacked_round,
    whole_of,
)
from fedsim.federation.transcripts.records import ObservedRound, TranscriptFacts

SUFFIX = ".fedt"
FACTS, END, LOCK = "facts.json", "end.json", "lock"
VERSION = 2

CHECKSUM = "sha256"

TEXT = "text"
"""Array of a round's file with its JSON, as bytes."""


def holds_several(path: Path) -> bool:
    """Return whether a path is that of a folder of transcripts, rather than of one."""
    return path.is_dir() and path.suffix != SUFFIX and not (path / FACTS).exists()


def is_empty(path: Path) -> bool:
    """Return whether nothing was recorded in a folder, though a writer may have locked it."""
    return path.is_dir() and not any(each.name != LOCK for each in path.iterdir())


def of_round(path: Path, number: int) -> Path:
    """Return the path of a round's file; the first has the number 1."""
    return path / f"{number:06}.npz"


def count(path: Path) -> int:
    """Return the number of rounds. Raises InputError if one before another is missing."""
    numbers = sorted(int(each.stem) for each in path.glob("*.npz") if each.stem.isdecimal())
    for place, number in enumerate(numbers, 1):
        if number != place:
            raise InputError(
                f"the transcript '{path}' has no {of_round(path, place).name}; restore the folder "
                "from a copy"
            )
    return len(numbers)


def write_facts(path: Path, facts: TranscriptFacts) -> None:
    text = {"version": VERSION, **vars(facts), "versions": dict(facts.versions)}
    _write(path / FACTS, text)


def read_facts(path: Path) -> TranscriptFacts:
    """Return the facts of a transcript. Raises InputError if they are missing or malformed."""
    if not (path / FACTS).exists():
        if not path.exists():
            raise InputError(f"cannot read the transcript '{path}': there is no such folder")
        if is_empty(path):
            raise InputError(f"nothing was recorded in the transcript '{path}'")
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
        versions = {text_of(name): text_of(value) for name, value in text["versions"].items()}
        return TranscriptFacts(
            **{name: text_of(text[name]) for name in ("vantage", "recorder", "app", "run")},
            node=None if text["node"] is None else whole_of(text["node"]),
            versions=versions,
        )


def write_round(path: Path, number: int, observed: ObservedRound) -> None:
    """Write a round. Raises InputError if an array is not numeric; OSError."""
    text, arrays = packed_round(observed)
    content: dict[str, Any] = {TEXT: np.frombuffer(_encoded(text), np.uint8), **arrays}
    with private_files.replacing(of_round(path, number)) as file:
        np.savez(file, **content)


def read_round(path: Path, number: int) -> ObservedRound:
    """Return a round. Raises InputError if its file is damaged or malformed."""
    file = of_round(path, number)
    with reading.damage(lambda why: _malformed(file, why)):
        arrays = reading.arrays(file)
        text = reading.json_value(arrays.pop(TEXT).tobytes())
        return unpacked_round(text, arrays)


def write_end(path: Path, incomplete: str, resumable: bool) -> None:
    text = {"incomplete": incomplete, "resumable": resumable}
    _write(path / END, text)


def read_end(path: Path) -> tuple[bool, str, bool]:
    """Return whether a transcript has ended, why rounds are missing, and if it may go on."""
    if not (path / END).exists():
        return False, "", True
    with reading.damage(lambda why: _malformed(path / END, why)):
        text = _read(path / END)
        return True, str(text.get("incomplete", "")), text.get("resumable") is True


def torn(path: Path) -> list[Path]:
    """Return what writers that were killed had not written whole."""
    return [*path.glob(f".*{private_files.PARTIAL}")]


def _write(file: Path, text: Mapping[str, Any]) -> None:
    """Write values as JSON, with a checksum of them."""
    private_files.write_private(file, _encoded({**text, CHECKSUM: _digest(text)}))


def _read(file: Path) -> dict[str, Any]:
    """Return values from JSON. Raises ValueError if they do not fit their checksum."""
    text = reading.json_object(file)
    if text.pop(CHECKSUM, "") != _digest(text):
        raise ValueError("its checksum does not match")
    return text


def _digest(text: Mapping[str, Any]) -> str:
    return hashlib.sha256(_encoded(text)).hexdigest()


def _encoded(text: Mapping[str, Any]) -> bytes:
    return json.dumps(text, allow_nan=False, separators=(",", ":")).encode()


def _malformed(file: Path, why: str) -> InputError:
    return InputError(
        f"'{file.name}' of the transcript '{file.parent}' is damaged: {why}; restore it from a copy"
    )
