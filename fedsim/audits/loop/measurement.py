"""What runs of a loop showed: data, and no code of the loop."""

from dataclasses import dataclass
from typing import Literal

FEATURES = ("sampled", "total", "last", "largest", "energy", "steps")
"""What is measured of every run under attack, in the order of `Features`.

sampled: log-likelihood ratio of all steps, by pilots' influence, noise and rate of participation;
total, last, largest: how far all steps, the last and the farthest moved along the target's
direction; energy: the logarithm of the released numbers' squared length; steps: their number.
"""

Features = tuple[float, ...]

FULL = 0.95
"""The rate of participation from which the target is taken to be in every step."""

Form = Literal["watched", "model", "models", "steps"]
"""What a loop releases: steps of Opacus's optimizer, one model, the model after each step, or the
steps themselves."""

SHOWN = 4
"""Coordinates of a step's noise by which it is known again."""


@dataclass(frozen=True)
class Learnt:
    """What pilots learnt of a pair of worlds.

    Attributes:
        distance: of the worlds, about, in standard deviations.
        form: of what the loop released.
        rows: k, how many rows that has.
        rate: the share of rows that the target takes part in, in (0, 1].
    """

    distance: float
    form: Form
    rows: int
    rate: float


@dataclass(frozen=True)
class StepSeen:
    """A step of Opacus's optimizer.

    Attributes:
        optimizer: its class.
        noise_multiplier: z, as the optimizer has it.
        noise_norm: the norm that scales the noise.
        sensitivity: how long (L2) a clipped gradient can be.
        divisor: what the noised sum was divided by.
        sizes: how many numbers each of the model's tensors has.
        noise_energies: squared length of the noise that was added to each of them.
        noise: the first coordinates of the noise.
        clipped: whether the sum is that of the records' clipped gradients; None where no gradient
            of a single record can be seen.
        records: that were drawn for it, an index as often as it was; -1 where no loader was seen.
        repeated: how often the most frequent of them was drawn.
        sampler: the kind that drew them, "" where none was seen, or data of another length before.
        rate: of a Poisson sampler, else 0.
        told: whether an accountant was told of the step.
        told_rate: the sampling rate that it was told, 0 if none.
        told_multiplier: the noise multiplier that it was told, 0 if none.
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
    """What an accountant said last."""

    epsilon: float
    delta: float
    steps: int


@dataclass(frozen=True)
class Seen:
    """What one run showed.

    Attributes:
        steps: of Opacus's optimizers, () without any.
        statement: None where no accountant was asked.
        counts: how often each record was drawn, [n]; () where no loader was seen.
        records: checksums of the records that a loader drew from, sorted; () where it has no
            tensors.
        explained: whether the model moved by those steps alone.
        epochs: passes over the data that steps drew from, each that was begun; 0 without a loader.
        beside: names and checksums of what the model has beside floating-point numbers: integer
            tensors, and attributes of its modules.
        unnoised: steps that an ordinary optimizer took on the same model after the first of them.
        start: checksum of the model before the first step, and of what no step makes of it.
        released: checksum of all that was released.
        values: how many different numbers are in it.
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
        """The kinds of sampler that drew the batches, in words."""
        return ", then ".join(dict.fromkeys(step.sampler for step in self.steps if step.sampler))
