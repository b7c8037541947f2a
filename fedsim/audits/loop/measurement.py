"""Measurements of a loop's runs, as data without any code of the loop."""

from dataclasses import dataclass
from typing import Literal

FEATURES = ("sampled", "total", "last", "largest", "energy", "steps")
"""Features of every attacked run, in the order of `Features`.

sampled: log-likelihood ratio of all steps, by the pilots' influence, noise and participation rate.
total, last, largest: shift of all steps, of the last and of the farthest along the target's
direction. energy: logarithm of the released numbers' squared length. steps: number of steps.
"""

Features = tuple[float, ...]

FULL = 0.95
"""Participation rate from which the target counts as part of every step."""

Form = Literal["watched", "model", "models", "steps"]
"""What a loop releases: steps of Opacus's optimizer, one model, the model after each step, or the
steps themselves."""

SHOWN = 4
"""Coordinates of a step's noise by which two noises are compared."""


@dataclass(frozen=True)
class Learnt:
    """Knowledge of a pair of worlds, learnt from pilots.

    Attributes:
        distance: approximate distance of the worlds, in standard deviations.
        form: form of the loop's releases.
        rows: k, the number of rows released.
        rate: share of rows in which the target takes part, in (0, 1].
    """

    distance: float
    form: Form
    rows: int
    rate: float


@dataclass(frozen=True)
class StepSeen:
    """A step of Opacus's optimizer.

    Attributes:
        optimizer: name of its class.
        noise_multiplier: z of the optimizer.
        noise_norm: norm that scales the noise.
        sensitivity: largest L2 norm of a clipped gradient.
        divisor: divisor of the noised sum.
        sizes: number of coordinates of each of the model's tensors.
        noise_energies: squared length of the noise added to each of them.
        noise: first coordinates of the noise.
        clipped: whether the sum is that of the records' clipped gradients; None where gradients of
            single records are not visible.
        records: number of records drawn for the step, with repetitions; -1 without a loader.
        repeated: how often the most frequent of them was drawn.
        sampler: kind of sampler; "" without one, or if the data had another length before.
        rate: rate of a Poisson sampler, else 0.
        told: whether an accountant recorded the step.
        told_rate: sampling rate that it recorded, 0 without one.
        told_multiplier: noise multiplier that it recorded, 0 without one.
        adaptive: whether the clipping norm follows the gradients.
        secure: whether the noise is drawn in Opacus's secure mode.
    """

    optimizer: str
    noise_multiplier: float
    noise_norm: float
    sensitivity: float
    divisor: float
    sizes: tuple[int, ...]
    noise_energies: tuple[float, ...]
    noise: tuple[float, ...]
    clipped: bool | None
    records: int
    repeated: int
    sampler: str
    rate: float
    told: bool
    told_rate: float
    told_multiplier: float
    adaptive: bool
    secure: bool


@dataclass(frozen=True)
class Statement:
    """The last answer of an accountant."""

    epsilon: float
    delta: float
    steps: int


@dataclass(frozen=True)
class Seen:
    """Observations of one run.

    Attributes:
        steps: steps of Opacus's optimizers, () without any.
        statement: None where the loop did not query an accountant.
        counts: how often each record was drawn, [n]; () without a loader.
        records: checksums of the records of a loader, sorted; () where it has no tensors.
        explained: whether those steps alone moved the model.
        epochs: passes over the data that steps drew from, unfinished ones included; 0 without a
            loader.
        beside: names and checksums of what the model carries beside floating-point numbers: integer
            tensors, and attributes of its modules.
        unnoised: steps of an ordinary optimizer on the same model, after the first of them.
        start: checksum of the model before the first step, and of its parts that no step changes.
        released: checksum of all releases.
        values: number of different numbers in the releases.
    """

    steps: tuple[StepSeen, ...]
    statement: Statement | None
    counts: tuple[int, ...]
    records: tuple[str, ...]
    explained: bool
    epochs: int
    beside: tuple[tuple[str, str], ...]
    unnoised: int
    start: str
    released: str
    values: int

    @property
    def samplers(self) -> str:
        """Kinds of sampler that drew the batches, in words."""
        return ", then ".join(dict.fromkeys(step.sampler for step in self.steps if step.sampler))
