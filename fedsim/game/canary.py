"""Consented canaries: crafted records whose trace in what is released tells how loud one record is.

A client that sets `canary-seed` in its node config plants `canary-count` of them (one, unless it
says). Each is in or out of a whole training by a fair coin; one that is in adds to the clean sum of
every round a gradient of norm C in a random direction, which is drawn anew for every round. Who
knows the seed knows the directions and the coins, and can look for the trace in the released sums
(`adversaries.statistics.canaries`). A canary moves a sum no more than any record may, so everybody
else's guarantee stays as it is. The beliefs of an adversary who does not know of it are off by what
it adds in their direction, which two random directions in P dimensions have in common: about
C/sqrt(P) of the noise's scale.

With `canary-kind = "text"` in its node config, the canaries are texts of random tokens instead, for
a decoder. One that is in adds its clipped gradient to every round. Who knows the seed looks for the
text in the released models, by its loss.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adversaries.errors import InputError
from fedsim.common.randomness import Role, generator
from fedsim.game.federation import Federation

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

DIRECTION, TEXT = "direction", "text"
"""What canaries of a client may be."""

TEXTS = 0
"""The partition of the seed tree that a client's texts are drawn in; coins are beside it."""

BLOCK = 2**22
"""Coordinates of directions that exist at a time (32 MiB)."""


@dataclass(frozen=True)
class Canaries:
    """The canaries of one client; everything about them is a function of the seed.

    Attributes:
        seed: the client's `canary-seed`.
        count: K, how many there are in every training.
        kind: `DIRECTION` or `TEXT`.

    Raises InputError for no canaries, or of another kind.
    """

    seed: int
    count: int = 1
    kind: str = DIRECTION

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError(f"canary-count is {self.count}; give 1 or more")
        if self.kind not in (DIRECTION, TEXT):
            raise InputError(f"canary-kind is '{self.kind}'; give {DIRECTION} or {TEXT}")

    def texts(self, vocabulary: int, padding: int, length: int) -> Tensor:
        """Return the texts that canaries of kind `TEXT` are, float32 [K, length].

        They are the same in all trials, so that only the coins differ.
        """
        stream = generator(self.seed, Role.CANARY, partition=TEXTS)
        return random_texts(stream, self.count, vocabulary, padding, length)

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


def random_texts(
    stream: np.random.Generator, count: int, vocabulary: int, padding: int, length: int
) -> Tensor:
    """Return texts whose tokens are drawn independently, all but padding.

    Uniform on the vocabulary, so that no model knows one before it is trained on it.

    Returns: float32 [count, length].
    """
    drawn = stream.integers(0, vocabulary - 1, (count, length))
    return torch.from_numpy((drawn + (drawn >= padding)).astype(np.float32))


def added(
    canaries: Canaries, known: Federation, parameters: Tensor, trials: range, round: int
) -> Tensor:
    """Return what the canaries of one client add to its clean sum of a round.

    parameters: float32 [T, P], the models of the round.
    Returns: float64 [T, P], on the device of the models.
    """
    if canaries.kind == DIRECTION:
        norm, size = known.clipper.clipping_norm, parameters.shape[1]
        return torch.from_numpy(canaries.total(trials, round, size, norm)).to(parameters.device)
    words: Any = known.model.config
    length = known.split.dataset.train.features.shape[1]
    tokens = canaries.texts(words.vocab_size, words.pad_token_id, length).to(known.device)
    labels = torch.zeros(len(tokens), dtype=torch.int64, device=known.device)
    weights = torch.from_numpy(canaries.coins(trials)).to(parameters)
    return known.clipper.clipped_sum(parameters, tokens, labels, weights)
