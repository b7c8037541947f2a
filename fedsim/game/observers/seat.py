"""What an adversary at the server sees of a round, and what its seat has to say of itself."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedsim.config import Config
from fedsim.game.mechanisms.step import Step, UnknownNoise
from fedsim.game.round_game import RoundGame
from fedsim.privacy.trust.model import Vantage

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """What an oracle reads of a round and nobody else may see.

    Attributes:
        worlds: bool [T], which trials train on D.
        present: [T, P], the target's clipped gradient.
        absent: [T, P], that of what D' has in its place; None for nothing.
        participation: bool [T], whether the target took part; None if it surely did.
        noises: by source, all noise that was drawn, [T, P] each; read one after the other.
    """

    worlds: Tensor
    present: Tensor
    absent: Tensor | None
    participation: Tensor | None
    noises: Iterable[tuple[int, Tensor]]


@dataclass(frozen=True)
class Seen:
    """What there is to see at the server of a round in which the target's client took part.

    Attributes:
        config: the experiment.
        game: which round, which trials and about what.
        participants: the clients that took part.
        unknown_noise: what hides the target, by vantage that sees every round and is measured.
        model: [T, P] float32, as it was sent.
        total: [T, P] float64, the sum that is released, less the noise that was disclosed.
        message: returns what a client sent, [T, P]; not where messages are summed securely.
        measured: returns what an oracle reads; for a seat that `reads_noise`.
    """

    config: Config
    game: RoundGame
    participants: tuple[int, ...]
    unknown_noise: Mapping[Vantage, UnknownNoise]
    model: Array
    total: Floats
    message: Callable[[int], Array]
    measured: Callable[[], Measured]


class Seat(ABC):
    """An adversary that looks at every round from the server; one for each batch of trials.

    Attributes:
        vantages: those at which it concludes.
        follows: whether the adversary's node keeps a belief of its own, at the participant.
        reads_noise: whether clients hand over their noise and the target's gradient.
        exact: whether its ratios are those of what its vantages see, and not an attack's score.
    """

    vantages: ClassVar[tuple[Vantage, ...]]
    follows: ClassVar[bool] = False
    reads_noise: ClassVar[bool] = False
    exact: ClassVar[bool] = True

    @abstractmethod
    def observe(self, seen: Seen) -> Mapping[Vantage, Step]:
        """Return what is learnt from a round at each of the vantages that are measured."""
