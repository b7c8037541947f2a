"""Consented canaries: crafted records whose trace in the sums tells how loud one record is.

A client that sets `canary-seed` in its node config plants `canary-count` of them (one, unless it
says). Each is in or out of a whole training by a fair coin; one that is in adds to the clean sum of
every round a gradient of norm C in a random direction, which is drawn anew for every round. Who
knows the seed knows the directions and the coins, and can look for the trace in the released sums
(`adversaries.statistics.canaries`). A canary moves a sum no more than any record may, so everybody
else's guarantee stays as it is. The beliefs of an adversary who does not know of it are off by what
it adds in their direction, which two random directions in P dimensions have in common: about
C/sqrt(P) of the noise's scale.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedsim.common.randomness import Role, generator

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

BLOCK = 2**22
"""Coordinates of directions that exist at a time (32 MiB)."""


@dataclass(frozen=True)
class Canaries:
    """The canaries of one client; everything about them is a function of the seed.

    Attributes:
        seed: the client's `canary-seed`.
        count: K, how many there are in every training.
    """

    seed: int
    count: int = 1

    def coins(self, trials: range) -> Bools:
        """Return which canaries are in.

        trials: the numbers of the T trials, each a training of its own.
        Returns: bool [T, K].
        """
        drawn = [
            generator(self.seed, Role.CANARY, trial=trial).random(self.count) for trial in trials
        ]
        return np.stack(drawn) < 0.5

    def total(self, trials: range, round: int, size: int, norm: float) -> Floats:
        """Return what the canaries that are in add to the clean sums of a round.

        Returns: float64 [T, P].
        """
        coins, total = self.coins(trials), np.zeros((len(trials), size))
        for row, trial in enumerate(trials):
            for place, block in self._directions(trial, round, size):
                total[row] += coins[row, place] @ block
        return norm * total

    def along(self, trials: range, round: int, released: npt.NDArray[np.floating]) -> Floats:
        """Return how far released sums reach along the direction of every canary.

        released: [T, P], the sums.
        Returns: float64 [T, K].
        """
        found = np.empty((len(trials), self.count))
        for row, trial in enumerate(trials):
            for place, block in self._directions(trial, round, released.shape[1]):
                found[row, place] = block @ released[row].astype(np.float64)
        return found

    def _directions(self, trial: int, round: int, size: int) -> Iterator[tuple[slice, Floats]]:
        """Yield which canaries, and their unit directions [b, P]: uniform on the sphere."""
        at_once = max(1, BLOCK // size)
        stream = generator(self.seed, Role.CANARY, trial=trial, round=round)
        for first in range(0, self.count, at_once):
            place = slice(first, min(first + at_once, self.count))
            drawn = stream.standard_normal((place.stop - first, size))
            yield place, drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
