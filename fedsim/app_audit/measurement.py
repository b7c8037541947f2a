"""What an audit asks of an app, and what one run of the app showed: data, and no code of the app.

They pass between the audit and the process that the app runs in (`fedsim.app_audit.process`).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fedsim.app_audit.configuration import Configuration, Statement, Training
from fedsim.common.randomness import Role, generator

Vector = npt.NDArray[np.float64]


class AppFailedError(RuntimeError):
    """The app that is audited failed, or did not do what a Flower app does."""


@dataclass(frozen=True)
class Script:
    """What every client sends in a scripted run.

    target: the partition whose update differs between the worlds; length: how far it moves the
        model, along `direction`; weight: the weight that it states, None for that of the honest
        run, under the key weighted_by
    idle: what every other client adds to the first number of the model. It must not be 0: Flower's
        clipping divides by the norm.
    seed: of the direction
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

    replies: how many clients replied; weights: of those that stated one, by partition
    clipped_to, noise_norm: the clipping norm before and after the aggregation, nan without central
        noise
    noise_energy: squared length of the released model less what was there before noise; None in
        scripted runs and without central noise
    model_shift, message_shift: the released model, and the target's reply, less the model before,
        along the script's direction; message_norm: the length of the latter difference. nan where
        there is nothing to measure.
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

    seeded: whether the server set the seed or the state of NumPy's global generator
    training: None for a scripted run
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
        """Run the app once, with every global seed set; honest unless there is a script.

        Raises AppFailedError if the app fails; an honest run must come before a scripted one.
        """
