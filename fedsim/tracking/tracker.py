"""What writes the numbers of a run where people keep their experiments."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

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

        Args:
            subject: the run.

        Returns:
            The last step of every series that is there already, of a run that is resumed.
        """

    def log(self, values: Mapping[str, float], step: int, time: float) -> None:
        """Write numbers.

        Args:
            values: finite, by the name of the series.
            step: the number of the round or of the finished trials, or 0.
            time: in seconds since the epoch.
        """

    def end(self, finished: bool) -> None:
        """End, for now where the run has not finished.

        Args:
            finished: whether it has.
        """
