"""How sure a live auditor must be at one look, so that what it says at all looks holds together."""

import math
from fractions import Fraction


class Looks:
    """Divides the error that an audit may make among its looks.

    One look a round is planned, with the same share of the error for each. A training that is
    resumed repeats rounds, as does a batch of trials that begins anew: the looks ahead divide what
    the looks before left. The shares add up to 1 at most, however often a training is resumed.
    """

    def __init__(self) -> None:
        self._left = self._share = Fraction(1)
        self._planned = 1

    def begin(self, planned: int, made: int) -> None:
        """Begin a batch of trials, or begin it anew.

        Args:
            planned: how many looks a run has that nothing interrupts.
            made: how many there may have been so far, also those of an earlier attempt.
        """
        self._planned = planned
        self._left = max(Fraction(0), min(self._left, 1 - Fraction(made, planned)))
        self._share = Fraction(1, planned)

    def look(self, ahead: int) -> None:
        """Look once more.

        Args:
            ahead: how many looks are planned from here on, with this one.
        """
        self._share = min(self._left / ahead, Fraction(1, self._planned))
        self._left -= self._share

    def level(self, confidence: float) -> float:
        """Return the confidence of the latest look that gives all looks together this one.

        Where nothing is left it is the largest number below 1: hardly any statement is so sure.
        """
        least = math.nextafter(1.0, 0.0)
        return min(least, 1 - (1 - confidence) / float(1 / self._share)) if self._share else least
