"""What writes the numbers of a run where people keep their experiments."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from adversaries.errors import InputError
from fedsim.common import private_files
from fedsim.config import Scalar


@dataclass(frozen=True)
class Subject:
    """The run that is tracked.

    Attributes:
        name: of its directory.
        identity: tells it from every other run.
        parameters: its resolved configuration by dotted key.
    """

    name: str
    identity: str
    parameters: Mapping[str, Scalar]


class Tracker(Protocol):
    """Writes the numbers of one run somewhere."""

    def begin(self, subject: Subject) -> Mapping[str, int]:
        """Begin, or go on with, a run.

        Returns:
            The last step of every series that is there already, of a run that is resumed.
        """

    def log(self, values: Mapping[str, float], step: int, time: float) -> None:
        """Write numbers.

        Args:
            step: the number of the round or of the finished trials, or 0.
            time: in seconds since the epoch.
        """

    def end(self, finished: bool) -> None:
        """End, for now where the run has not finished.

        Args:
            finished: whether it has.
        """


def folder(place: str) -> Path:
    """Return the folder that a user named for the numbers of runs, for his eyes if it is new."""
    path = private_files.as_named(Path(place).expanduser().absolute())
    try:
        private_files.make_directory(path)
        private_files.check_writable(path)
    except OSError as error:
        raise InputError(
            f"cannot write to the folder '{place}': {error.strerror}; name another"
        ) from None
    return path
