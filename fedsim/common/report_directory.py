"""The directory of a report about persons: for its owner's eyes, each file whole or not at all."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from adversaries.errors import InputError
from fedsim.common import private_files, reading

HELD = ("report.json", "config.toml", "ledger.jsonl")
"""What a run, a finished report or what is left of a budget is recognised by."""

EVIDENCE = "evidence.json"
"""How the name of a file with evidence of a report ends, which no evidence speaks of."""


def create(directory: Path) -> Path:
    """Make the directory (0700) if there is none, and see that it can be written; return it.

    To be called before the work whose result goes there.

    Raises InputError if it cannot be made or written.
    """
    try:
        private_files.make_directory(directory)
        private_files.check_writable(directory)
    except OSError as error:
        raise refusal(directory, error) from None
    return directory


def check(directory: Path) -> None:
    """See that the directory can be made and written, and leave nothing behind.

    For work that may still find nothing to report.

    Raises InputError if it cannot be made or written.
    """
    missing = [place for place in (directory, *directory.parents) if not os.path.lexists(place)]
    try:
        create(directory)
    finally:
        for place in missing:
            with contextlib.suppress(OSError):  # never made, or somebody else's by now
                place.rmdir()


def check_new(directory: Path, replacing: str | None = None) -> None:
    """As `check`, and see that the directory holds no run and no report, which would be replaced.

    replacing: the kind of report that may be there; None for none.
    Raises InputError if it holds one, or cannot be made or written.
    """
    own = directory / "report.json"
    if replacing and os.path.lexists(own) and _kind(own, replacing) == replacing:
        check(directory)
        return
    for name in HELD:
        if not os.path.lexists(directory / name):
            continue
        raise InputError(
            f"'{directory}' holds a run or a report: its {name} is there; name a new directory "
            "with --out"
        )
    check(directory)


def _kind(path: Path, wanted: str) -> object:
    """Return which kind of report a report.json is.

    Raises InputError for one that is damaged, or may not be read.
    """
    try:
        return reading.json_object(path).get("kind")
    except OSError as error:
        raise InputError(
            f"cannot read '{path}': {error.strerror}; make it readable, or name a new directory "
            "with --out"
        ) from None
    except reading.DAMAGE:
        raise InputError(
            f"'{path}' is damaged; if it is a {wanted}'s, delete it and give the same command "
            "again; else name a new directory with --out"
        ) from None


def refusal(directory: Path, error: OSError) -> InputError:
    """Return the error that says that a directory cannot be written."""
    return InputError(
        f"cannot write to '{directory}': {error.strerror}; name another directory with --out"
    )


@contextlib.contextmanager
def refusing(directory: Path) -> Iterator[None]:
    """Turn a failure to write into the directory, inside of the block, into an error of one line.

    Raises InputError if the block raised OSError.
    """
    try:
        yield
    except OSError as error:
        raise refusal(directory, error) from None


def write_report(directory: Path, report: Mapping[str, Any], page: str) -> Path:
    """Write report.json and report.html; return the page.

    directory: of the report, made if there is none.
    Raises InputError if the directory is a link.
    Raises OSError if it cannot be written.
    Raises ValueError for a number that JSON has not.
    """
    private_files.make_directory(directory)
    text = json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False)
    private_files.write(directory / "report.json", f"{text}\n".encode())
    private_files.write(directory / "report.html", page.encode())
    return directory / "report.html"
