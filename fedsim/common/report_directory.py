"""The directory of a report about persons: private, with files that are whole or missing."""

import contextlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from adversaries.errors import InputError
from fedsim.common import private_files, reading

HELD = ("report.json", "config.toml", "ledger.jsonl")
"""Files by which a run, a finished report or the rest of a budget is recognised."""

SUMS = "SHA256SUMS"
"""File with the sum of each file of a finished result, which `fedsim verify` writes."""


def timed(name: str) -> Path:
    """Return the path of a new directory under fedsim-runs/, named after something and the time."""
    first = Path("fedsim-runs") / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    others = (first.with_name(f"{first.name}-{number}") for number in itertools.count(2))
    return next(path for path in itertools.chain([first], others) if not path.exists())


def create(directory: Path) -> Path:
    """Make the directory (0700) if it is missing; return it. Raises InputError if it cannot."""
    try:
        private_files.make_directory(directory)
        private_files.check_writable(directory)
    except OSError as error:
        raise refusal(directory, error) from None
    return directory


def check_writable(directory: Path) -> None:
    """Check that the directory can be made and written, and leave nothing; else InputError."""
    missing = [place for place in (directory, *directory.parents) if not os.path.lexists(place)]
    try:
        create(directory)
    finally:
        for place in missing:
            with contextlib.suppress(OSError):  # never made, or used by another process
                place.rmdir()


def check_new(directory: Path, replacing: str | None = None) -> None:
    """Check that the directory can be made and written, and holds no run and no report.

    replacing: a kind of report that may be replaced; None: no kind.
    Raises InputError if it holds one, or cannot be made or written.
    """
    own = directory / "report.json"
    if replacing and os.path.lexists(own) and _kind(own) == replacing:
        check_writable(directory)
        return
    for name in HELD:
        if not os.path.lexists(directory / name):
            continue
        raise InputError(
            f"'{directory}' holds a run or a report, since it has {name}; name a new directory "
            "with --out"
        )
    check_writable(directory)


def _kind(path: Path) -> object:
    """Return the kind of a report.json. Raises InputError if it is damaged or unreadable."""
    try:
        return reading.json_object(path).get("kind")
    except reading.DAMAGE as error:
        raise InputError(
            f"cannot read '{path}': {reading.reason(error)}; delete it and repeat the command, or "
            "name a new directory with --out"
        ) from None


def refusal(directory: Path, error: OSError) -> InputError:
    return InputError(
        f"cannot write to '{directory}': {error.strerror}; name another directory with --out"
    )


@contextlib.contextmanager
def refusing(directory: Path) -> Iterator[None]:
    """Turn an OSError within the block into the InputError for an unwritable directory.

    The error of a full disk stays: another directory would not help.
    """
    try:
        yield
    except OSError as error:
        if error.errno in private_files.NO_ROOM:
            raise
        raise refusal(directory, error) from None


def write_report(directory: Path, report: Mapping[str, Any], page: str) -> Path:
    """Write report.json and report.html; return the page.

    Raises InputError if the directory is a link or cannot be written, OSError if its disk is full.
    Raises ValueError for a number that is NaN or infinite.
    """
    with refusing(directory):
        private_files.make_directory(directory)
        text = json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False)
        private_files.write_private(directory / "report.json", f"{text}\n".encode())
        private_files.write_private(directory / "report.html", page.encode())
    return directory / "report.html"
