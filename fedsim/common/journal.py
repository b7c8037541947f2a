"""A growing file of JSON objects, one a line, in which damage shows.

Each line has a checksum over it and all before it. A last line without its end had no effect and is
dropped. Any other damage is an error, but for whole lines cut off at the end.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from adversaries.errors import InputError
from fedsim.common import private_files, reading

Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Journal(Generic[Entry]):
    """The entries of a file, the checksum of the last, and the bytes of the whole lines."""

    entries: list[Entry]
    check: str = ""
    size: int = 0


def read(path: Path, parse: Callable[[dict[str, Any]], Entry], loss: str) -> Journal[Entry]:
    """Return the entries of a file; without a file there are none.

    parse: makes an entry of an object; raises KeyError, TypeError or ValueError if it is invalid.
    loss: the consequence of a damaged line, and the remedy, for the error.
    Raises InputError if the file cannot be read, or a line is damaged.
    """
    if not path.exists():
        return Journal([])
    try:
        text = path.read_bytes()
    except OSError as error:
        where = f"'{path.parent}': {error.strerror}"
        raise InputError(f"cannot read {path.name} in {where}") from None
    entries, check, size = [], "", 0
    *lines, _ = text.split(b"\n")  # the last part is empty, or an unfinished line
    for number, line in enumerate(lines, 1):
        try:
            values = reading.json_value(line)
            stored = values.pop("check")
            if stored != _checksum(values, check):
                raise ValueError("the checksum does not fit")
            entries.append(parse(values))
        except reading.DAMAGE:
            raise InputError(
                f"{path.name} in '{path.parent}' is damaged in line {number}, so {loss}"
            ) from None
        check = stored
        size += len(line) + 1
    return Journal(entries, check, size)


def drop_unfinished(path: Path, journal: Journal[Any]) -> None:
    """Cut off an unfinished last line. Raises as `private_files.opened_own`."""
    if path.exists() and path.stat().st_size > journal.size:
        with os.fdopen(private_files.opened_own(path), "ab") as file:
            file.truncate(journal.size)


def append(path: Path, values: Mapping[str, Any], previous: str) -> str:
    """Write strict JSON behind the last line, to disk; return its checksum. ValueError for NaN."""
    check = _checksum(values, previous)
    text = json.dumps({**values, "check": check}, allow_nan=False)
    private_files.append(path, f"{text}\n".encode())
    return check


def _checksum(values: Mapping[str, Any], previous: str) -> str:
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(f"{previous}{canonical}".encode()).hexdigest()[:16]
