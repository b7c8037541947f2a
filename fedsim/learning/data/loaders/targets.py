"""Numbers as labels: what a regression predicts, on a public range.

Labels are whole numbers everywhere, so a number becomes the nearest of 2^20 + 1 equal steps of its
range: half of a millionth of the range is lost. What lies outside of the range is clipped to it,
record by record, so that nobody's number changes another's.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError

STEPS = 2**20
"""Steps of a range; float32 holds all of them exactly."""


@dataclass(frozen=True)
class Target:
    """The public range of a number that is predicted.

    Attributes:
        least: the start of the range.
        largest: its end.

    Raises:
        InputError: ends that are not finite, or not in order.
    """

    least: float
    largest: float

    def __post_init__(self) -> None:
        if not (np.isfinite([self.least, self.largest]).all() and self.least < self.largest):
            raise InputError(
                f"the target's range is {self.least:g} to {self.largest:g}; give two finite "
                "numbers, the smaller one first"
            )

    def steps(self, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the step of each number, int64, with numbers outside of the range clipped.

        values: finite numbers.
        """
        share = (np.asarray(values, np.float64) - self.least) / (self.largest - self.least)
        return np.rint(np.clip(share, 0, 1) * STEPS).astype(np.int64)

    def values(self, shares: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the numbers, float64, that lie at these shares of the range."""
        return self.least + np.asarray(shares, np.float64) * (self.largest - self.least)


def parsed(text: str) -> Target | None:
    """Return the target of "LEAST,LARGEST"; None for "". Raises InputError for another text."""
    if not text:
        return None
    try:
        least, largest = map(float, text.split(","))
    except ValueError:
        raise InputError(
            f"data.target is '{text}'; give the least and the largest value with a comma between "
            'them, such as "0,60"'
        ) from None
    return Target(least, largest)
