"""A file of JSON objects, one a line, that only grows and in which damage shows.

Each line carries a checksum of itself and of the line before, and is on disk before `append`
returns. A last line without its end was never acted upon and is dropped; any other damage is an
error. What was cut off behind a whole line does not show.
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
    """The entries of a file, as it was read.

    Attributes:
        entries: in their order.
        check: the checksum of the last one, "" without any.
        size: how many bytes their whole lines take.
    """

    entries: list[Entry]
    check: str = ""
    size: int = 0


def read(path: Path, parse: Callable[[dict[str, Any]], Entry], loss: str) -> Journal[Entry]:
    """Return the entries of a file, none if there is none.

    parse: makes an entry of an object; raises KeyError, TypeError or ValueError for one that is no
    entry.
    loss: what nobody knows for lack of a damaged line, and what to do about it, for the error.
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
    *lines, _ = text.split(b"\n")  # behind the last line is nothing, or an unfinished one
    for number, line in enumerate(lines, 1):
        try:
            values = reading.json_value(line)
            found = values.pop("check")
            if found != _checksum(values, check):
                raise ValueError("the checksum does not fit")
            entries.append(parse(values))
        except reading.DAMAGE:
            raise InputError(
                f"{path.name} in '{path.parent}' is damaged in line {number}, so that {loss}"
            ) from None
        check = found
        size += len(line) + 1
    return Journal(entries, check, size)


def drop_unfinished(path: Path, journal: Journal[Any]) -> None:
    """Cut off what is behind the last whole line of a file as it was read.

    Raises:
        InputError, OSError: as of `private_files.opened_own`.
    """
    if path.exists() and path.stat().st_size > journal.size:
        with os.fdopen(private_files.opened_own(path), "ab") as file:
            file.truncate(journal.size)


def append(path: Path, values: Mapping[str, Any], previous: str) -> str:
    """Write an object behind the last line, on the disk; return its checksum.

    Args:
        values: the object, of strict JSON, without a "check".
        previous: the checksum of the last line, "" for a new file.

    Raises:
        InputError, OSError: as of `private_files.append`.
        ValueError: a number that JSON has not.
    """
    check = _checksum(values, previous)
    text = json.dumps({**values, "check": check}, allow_nan=False)
    private_files.append(path, f"{text}\n".encode())
    return check


def _checksum(values: Mapping[str, Any], previous: str) -> str:
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(f"{previous}{canonical}".encode()).hexdigest()[:16]
