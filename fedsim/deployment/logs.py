"""The logs of the services that start.sh starts: their form and their length."""

import logging
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

logger = logging.getLogger(__name__)

LARGEST = 10 << 20
"""Bytes after which a log becomes NAME.log.1 and replaces an older one."""


class _Line(logging.Formatter):
    """One line: time (ISO 8601, UTC), machine, level, message."""

    def __init__(self, machine: str) -> None:
        super().__init__(f"%(asctime)s {machine} %(levelname)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")

    def format(self, record: logging.LogRecord) -> str:
        return " | ".join(super().format(record).splitlines())


def begin(machine: str) -> None:
    """Log to standard error, in lines that a collector can parse."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Line(machine))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("fedsim").setLevel(logging.INFO)


def rotate(folder: Path) -> None:
    """Copy long logs away and empty them. Their writers continue, since start.sh appends.

    A log that cannot be copied stays, with a warning: no service may fail over its log.
    """
    for log in folder.glob("*.log"):
        try:
            if log.stat().st_size > LARGEST:
                shutil.copyfile(log, log.with_name(f"{log.name}.1"))
                os.truncate(log, 0)
        except OSError as error:
            logger.warning("cannot shorten %s: %s", log.name, error)
