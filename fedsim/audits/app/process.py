"""An app in a process of its own, and what may be asked of it there.

The audit asks for one run after another and gets measurements back; the verdict is worked out here,
from them.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from fedsim.audits.app.configuration import Configuration, Statement, Training
from fedsim.audits.sandbox.channel import Channel, Reply
from fedsim.common.randomness import Role, generator
from fedsim.config import Scalar

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Script:
    """What every client sends in a scripted run.

    Attributes:
        target: the partition whose update differs between the worlds.
        length: how far (L2) it moves the model along `direction`; below 0 for the other way.
        weight: that the target states, None for that of the honest run.
        weighted_by: the metric that holds the weight.
        idle: what every other client adds to the first number of the model. It must not be 0:
            Flower's clipping divides by the norm.
    """

    target: int
    length: float
    weight: float | None
    weighted_by: str
    idle: float
    seed: int


@lru_cache(maxsize=1)
def direction(seed: int, parameters: int) -> Vector:
    """Return the unit vector [P] along which the target moves, and along which a run is measured.

    All runs of an audit share it.
    """
    drawn = generator(seed, Role.CANARY).standard_normal(parameters)
    return drawn / np.linalg.norm(drawn)


@dataclass(frozen=True)
class Round:
    """What was seen of one round.

    Attributes:
        weights: of those that stated one, by partition.
        clipped_to: the clipping norm before the aggregation, nan without central noise.
        noise_norm: the clipping norm after it, by which Flower scales the noise; nan likewise.
        noise_energy: squared length of the released model less what was there before noise; None in
            scripted runs and without central noise.
        model_shift: the released model less the one before, along the script's direction; nan in an
            honest run.
        message_shift: the target's reply less the model before, likewise; nan where it sent none.
        message_norm: the length of that difference, nan likewise.
    """

    replies: int
    weights: dict[int, float]
    clipped_to: float
    noise_norm: float
    noise_energy: float | None
    model_shift: float
    message_shift: float
    message_norm: float


@dataclass(frozen=True)
class Execution:
    """What was seen of one run.

    Attributes:
        rounds: in order; at least one.
        configuration: read off the strategy and mods as they were at the end of the run.
        seeded: whether the server set the seed or the state of NumPy's global generator.
        parameters: P, the floating-point numbers of the model.
        training: None for a scripted run.
    """

    rounds: tuple[Round, ...]
    configuration: Configuration
    statements: tuple[Statement, ...]
    seeded: bool
    parameters: int
    training: Training | None = None


class App(Protocol):
    """An app that can be run again and again, in whichever process."""

    @property
    def name(self) -> str:
        """The app's name."""

    @property
    def clients(self) -> int:
        """How many clients it is run with."""

    def execute(self, seed: int, script: Script | None = None) -> Execution:
        """Return what one run of the app showed, with every global seed set before it.

        Args:
            seed: of Python's, NumPy's and PyTorch's global generators.
            script: what clients send instead of training; None for an honest run, one of which must
                come before a scripted one.
        """


@dataclass(frozen=True)
class Order:
    """Which app is to be loaded, and how; the first message to the process."""

    directory: str
    clients: int
    overrides: dict[str, Scalar]


@dataclass(frozen=True)
class Request:
    """One run, asked for after an order was answered."""

    seed: int
    script: Script | None


@dataclass(frozen=True)
class Answer(Reply):
    """What the process says to an order or a request; one of the fields is not None."""

    name: str | None = None
    execution: Execution | None = None


ORDER, REQUEST, ANSWER = TypeAdapter(Order), TypeAdapter(Request), TypeAdapter(Answer)


class AppProcess:
    """An app that runs in another process."""

    def __init__(self, order: Order, channel: Channel) -> None:
        self._channel = channel
        self.clients = order.clients
        self.name = channel.ask(order, ANSWER).name or ""

    def execute(self, seed: int, script: Script | None = None) -> Execution:
        answer = self._channel.ask(Request(seed, script), ANSWER)
        if answer.execution is None:
            raise self._channel.no_measurement()
        return answer.execution
