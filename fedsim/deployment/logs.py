"""The logs of what start.sh begins: a collector's lines, kept short; their last complaint is read.

Flower's own lines, between them, are in Flower's form.
"""

import logging
import os
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

logger = logging.getLogger(__name__)

LARGEST = 10 << 20
"""Bytes of a log, after which it becomes NAME.log.1, in place of an older one."""

TAIL = 1 << 16
"""Bytes at the end of a log in which a complaint is looked for."""

COLOUR = re.compile(r"\x1b\[[0-9;]*m")

COMPLAINT = re.compile(
    r"\[code: \d+\]|\bERROR\b|\w+(Error|Exception)\b|terminated|did not|mismatch"
)

HARMLESS = "Runtime task-token authentication failed"
"""What a SuperNode says where this program asks about a task that has just been answered."""


class _Line(logging.Formatter):
    """One line for what is said: when (ISO 8601, UTC), by which machine, how grave, what."""

    def __init__(self, machine: str) -> None:
        super().__init__(f"%(asctime)s {machine} %(levelname)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")

    def format(self, record: logging.LogRecord) -> str:
        return " | ".join(super().format(record).splitlines())


def begin(machine: str) -> None:
    """Log lines that a collector can parse, on standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Line(machine))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("fedsim").setLevel(logging.INFO)


def rotate(folder: Path) -> None:
    """Copy long logs away and empty them; whoever writes one goes on, for start.sh appends.

    A log of which no copy can be made stays as it is, which is said: nothing may end over it.
    """
    for log in folder.glob("*.log"):
        try:
            if log.stat().st_size > LARGEST:
                shutil.copyfile(log, log.with_name(f"{log.name}.1"))
                os.truncate(log, 0)
        except OSError as error:
            logger.warning("%s is not kept short: %s", log.name, error)


def complaint(log: Path) -> str:
    """Return the last complaint at the end of a log, as one printable line; "" where is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL))
            lines = COLOUR.sub("", file.read().decode(errors="replace")).splitlines()
    except OSError:
        return ""
    said = [line for line in lines if COMPLAINT.search(line) and HARMLESS not in line]
    return "".join(c for c in said[-1] if c.isprintable())[:200].strip() if said else ""
