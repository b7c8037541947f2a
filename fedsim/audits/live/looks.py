"""The confidence of each of a live auditor's looks, such that all its results hold together."""

import math
from fractions import Fraction


class Looks:
    """Divides the error that an audit may make among its looks.

    One look is planned for each round, all with the same share of the error. A resumed training, or
    a batch of trials that begins anew, repeats rounds. The coming looks then divide the error that
    is left. The shares never add up to more than 1.
    """

    def __init__(self) -> None:
        self._left = self._share = Fraction(1)
        self._planned = 1

    def begin(self, planned: int, made: int) -> None:
        """Begin a batch of trials.

        Args:
            planned: number of looks of a run without interruptions.
            made: number of looks so far, at most, those of earlier attempts included.
        """
        self._planned = planned
        self._left = max(Fraction(0), min(self._left, 1 - Fraction(made, planned)))
        self._share = Fraction(1, planned)

    def look(self, ahead: int) -> None:
        """Take the share of one look; `ahead` looks are planned from now on, with this one."""
        self._share = min(self._left / ahead, Fraction(1, self._planned))
        self._left -= self._share

    def level(self, confidence: float) -> float:
        """Return the confidence of the latest look at which all looks together have this one.

        If no error is left, it is the largest number below 1, which almost no statement reaches.
        """
        least = math.nextafter(1.0, 0.0)
        return min(least, 1 - (1 - confidence) / float(1 / self._share)) if self._share else least
