"""An app in its own process, and the messages to and from it.

The audit requests one run after another and gets measurements back. It computes the verdict here.
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
    """Messages of the clients in a scripted run.

    Attributes:
        target: partition whose update differs between the worlds.
        length: L2 length of its update along `direction`; negative for the opposite way.
        weight: weight that the target states; None for that of the honest run.
        weighted_by: metric that holds the weight.
        idle: number that every other client adds to the model's first coordinate. It must not be 0:
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
    """Return the unit vector [P] of the target's update; all runs of an audit share it."""
    drawn = generator(seed, Role.CANARY).standard_normal(parameters)
    return drawn / np.linalg.norm(drawn)


@dataclass(frozen=True)
class Round:
    """Observations of one round.

    Attributes:
        weights: stated weights, by partition.
        clipped_to: clipping norm before the aggregation; nan without central noise.
        noise_norm: clipping norm after it, which scales Flower's noise; nan without central noise.
        noise_energy: squared length of the released model less the one before noise; None in
            scripted runs and without central noise.
        model_shift: released model less the previous one, along the script's direction; nan in an
            honest run.
        message_shift: target's reply less the previous model, along the script's direction; nan
            without a reply, or in an honest run.
        message_norm: length of that difference; nan in the same cases.
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
    """Observations of one run.

    Attributes:
        rounds: at least one, in order.
        configuration: read off the strategy and mods at the end of the run.
        seeded: whether the server set the seed or the state of NumPy's global generator.
        parameters: P, the number of the model's floating-point parameters.
        training: None for a scripted run.
    """

    rounds: tuple[Round, ...]
    configuration: Configuration
    statements: tuple[Statement, ...]
    seeded: bool
    parameters: int
    training: Training | None = None


class App(Protocol):
    """An app that can run many times, in this process or another."""

    @property
    def name(self) -> str:
        """Name of the app."""

    @property
    def clients(self) -> int:
        """Number of clients of the app."""

    def execute(self, seed: int, script: Script | None = None) -> Execution:
        """Return the observations of one run of the app, after setting every global seed.

        script: the clients' messages instead of training. None: an honest run, which must come
        before the first scripted run.
        """


@dataclass(frozen=True)
class Order:
    """The app to load, and how; the first message to the process."""

    directory: str
    clients: int
    overrides: dict[str, Scalar]


@dataclass(frozen=True)
class Request:
    """A request for one run, after the order was answered."""

    seed: int
    script: Script | None


@dataclass(frozen=True)
class Answer(Reply):
    """The answer to an order or a request; one of the fields is not None."""

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
