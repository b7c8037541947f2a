"""An adversary's seat at the server, and what it sees of a round."""

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
    """Secrets of a round that only an oracle may read.

    Attributes:
        present, absent: [T, P], the clipped gradients of the target and of its replacement in D'.
        participation: bool [T], whether the target took part; None if it surely did.
        noises: all noise, by source, [T, P] each; read one after another.
    """

    worlds: Tensor
    present: Tensor
    absent: Tensor | None
    participation: Tensor | None
    noises: Iterable[tuple[int, Tensor]]


@dataclass(frozen=True)
class Seen:
    """The server's view of a round in which the target's client took part.

    Attributes:
        unknown_noise: noise that hides the target, by measured vantage that sees every round.
        model: [T, P] float32, as it was sent.
        total: [T, P] float64, the released sum less the disclosed noise.
        message: returns a client's message, [T, P]; not where messages are summed securely.
        measured: returns an oracle's secrets; for a seat that `reads_noise`.
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
    """An adversary that observes every round at the server; one for each batch of trials.

    Attributes:
        follows: whether the adversary's node keeps its own belief, as a participant.
        reads_noise: whether clients give their noise and the target's gradient to the auditor.
        exact: whether its ratios are exact for its vantages, and not an attack's score.
    """

    vantages: ClassVar[tuple[Vantage, ...]]
    follows: ClassVar[bool] = False
    reads_noise: ClassVar[bool] = False
    exact: ClassVar[bool] = True

    @abstractmethod
    def observe(self, seen: Seen) -> Mapping[Vantage, Step]:
        """Return the evidence of a round at each measured vantage."""
