"""Numbers as labels: the target of a regression, on a public range.

A number becomes the nearest of 2^20 + 1 equal steps of its range; others are clipped to it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError

STEPS = 2**20
"""Steps of a range; float32 represents all of them exactly."""


@dataclass(frozen=True)
class Target:
    """The public range of the number that a regression predicts, in order; else InputError."""

    least: float
    largest: float

    def __post_init__(self) -> None:
        if not (np.isfinite([self.least, self.largest]).all() and self.least < self.largest):
            raise InputError(
                f"the target's range is {self.least:g} to {self.largest:g}; give two finite "
                "numbers, the smaller one first"
            )

    def steps(self, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the step of each finite number, int64; numbers outside the range are clipped."""
        share = (np.asarray(values, np.float64) - self.least) / (self.largest - self.least)
        return np.rint(np.clip(share, 0, 1) * STEPS).astype(np.int64)

    def values(self, shares: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the numbers, float64, at these shares of the range."""
        return self.least + np.asarray(shares, np.float64) * (self.largest - self.least)


def parsed(text: str) -> Target | None:
    """Return the target in "LEAST,LARGEST"; None for ""; InputError for another text."""
    if not text:
        return None
    try:
        least, largest = map(float, text.split(","))
    except ValueError:
        raise InputError(
            f"data.target is '{text}'; give the least and the largest value separated by a comma, "
            'such as "0,60"'
        ) from None
    return Target(least, largest)
