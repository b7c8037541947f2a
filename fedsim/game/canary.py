"""Consenting canaries: crafted records whose trace in the releases shows how loud one record is.

A fair coin includes or excludes each for a whole training. An included one adds a gradient of norm
C, in a random direction drawn anew, to the clean sum of every round, no more than any record may. A
party with the seed can look for the trace in the released sums (`adversaries.bounds.canaries`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adversaries.arrays import Bools, Floats
from adversaries.errors import InputError
from fedsim.common.randomness import StreamRole, generator
from fedsim.game.federation import Federation

BLOCK = 2**22
"""Most coordinates of directions in memory at a time (32 MiB)."""


@dataclass(frozen=True)
class Canaries:
    """The canaries of one client; the seed determines all of them.

    Attributes:
        seed: the client's `canary-seed`.
        count: K, number of canaries in every training.

    Raises InputError for a count below 1.
    """

    seed: int
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError(f"canary-count is {self.count}; it must be at least 1")

    def coins(self, trials: range) -> Bools:
        """Return which canaries are included in T trials, each a training: bool [T, K]."""
        drawn = [
            generator(self.seed, StreamRole.CANARY, trial=trial).random(self.count)
            for trial in trials
        ]
        return np.stack(drawn) < 0.5

    def total(self, trials: range, round: int, size: int, norm: float) -> Floats:
        """Return what the included canaries add to the clean sums of a round: float64 [T, P]."""
        coins, total = self.coins(trials), np.zeros((len(trials), size))
        for row, trial in enumerate(trials):
            for place, block in self._directions(trial, round, size):
                total[row] += coins[row, place] @ block
        return norm * total

    def along(self, trials: range, round: int, released: npt.NDArray[np.floating]) -> Floats:
        """Return inner products [T, K] of released sums [T, P] with every canary's direction."""
        products = np.empty((len(trials), self.count))
        for row, trial in enumerate(trials):
            for place, block in self._directions(trial, round, released.shape[1]):
                products[row, place] = block @ released[row].astype(np.float64)
        return products

    def _directions(self, trial: int, round: int, size: int) -> Iterator[tuple[slice, Floats]]:
        """Yield the positions of canaries and their unit directions [b, P], uniform on a sphere."""
        at_once = max(1, BLOCK // size)
        stream = generator(self.seed, StreamRole.CANARY, trial=trial, round=round)
        for first in range(0, self.count, at_once):
            place = slice(first, min(first + at_once, self.count))
            drawn = stream.standard_normal((place.stop - first, size))
            yield place, drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def added(
    canaries: Canaries, federation: Federation, parameters: Tensor, trials: range, round: int
) -> Tensor:
    """Return what a client's canaries add to its clean sum, float64 [T, P]."""
    norm, size = federation.clipper.clipping_norm, parameters.shape[1]
    return torch.from_numpy(canaries.total(trials, round, size, norm)).to(parameters.device)
