"""The observations of one vantage point: facts, rounds, replies; a model as one vector."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Floats
from adversaries.errors import InputError

LOOP = "loop"
"""The vantage of a training loop, whose rounds are steps."""

VANTAGES = ("server", "auditor", LOOP)

UNITS = ("client", "record")
"""Units of a claim's protection: a client with its whole update, or a record of its data."""

AUDITOR = "fedsim auditor"
"""The recorder in a transcript of an auditor's node (`fedsim.auditor_app`)."""

Arrays = Mapping[str, npt.NDArray[Any]]
Scalar = bool | int | float | str
Value = Scalar | None | list[int] | list[float]


@dataclass(frozen=True)
class TranscriptFacts:
    """The facts in the first record of a transcript.

    Raises InputError if the vantage does not exist.

    Attributes:
        vantage: "server" sees every reply; "auditor" is a participant that joined to audit; "loop"
            sees every step of DP-SGD.
        node: partition, or else node id, of an auditor; None for others.
    """

    vantage: str
    recorder: str
    app: str = ""
    node: int | None = None
    run: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.vantage not in VANTAGES:
            raise InputError(
                f"the vantage is '{self.vantage}'; a transcript has one of {', '.join(VANTAGES)}"
            )


@dataclass(frozen=True)
class NodeReply:
    """The reply of one node: its model, its number of examples or None, and its metrics."""

    arrays: Arrays
    num_examples: float | None = None
    metrics: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class ObservedRound:
    """The observations of one round.

    The mechanism has these keys; a missing one is unknown:

    - For a strategy: "strategy", "noise_multiplier", "clipping_norm", "num_sampled_clients",
      "weighted_by" and "clipping" ("server" or "client").
    - "aggregation": "mean" if Flower's own code releases the plain mean; else "other".
    - "own_noise": name of code that makes the noise and is not the framework's.
    - "unit": one of `UNITS`, if it was declared.

    In a training loop (vantage "loop") a round is a step of DP-SGD without a model. The only reply
    is the sum of the clipped gradients, `aggregate` is (sum + noise)/divisor, and `participants`
    are the records of the batch.

    Attributes:
        model: the global model before the round, by name; empty: not seen.
        replies: by node id, before the server clipped them; empty at other vantages.
        aggregate: the global model after the round.
        participants: ids of the nodes that received a request to train; None: unknown.
    """

    round: int
    model: Arrays = field(default_factory=dict)
    replies: Mapping[int, NodeReply] = field(default_factory=dict)
    aggregate: Arrays | None = None
    participants: tuple[int, ...] | None = None
    mechanism: Mapping[str, Scalar] = field(default_factory=dict)


def not_of_an_auditor(observed: ObservedRound) -> InputError:
    """Return the error for a round that no auditor's node of fedsim recorded."""
    return InputError(
        f"round {observed.round} of this transcript was not recorded by an auditor's node of "
        "fedsim; give the transcript that the node wrote"
    )


@dataclass(frozen=True)
class Transcript:
    """A transcript as it was read, with the bytes that were torn off, and why it is incomplete."""

    facts: TranscriptFacts
    rounds: tuple[ObservedRound, ...]
    ended: bool
    incomplete: str
    torn: int


@dataclass(frozen=True)
class Layout:
    """The places of a model's floating-point arrays in one vector of P parameters.

    Attributes:
        shapes: shape of each array by name, in the order of the model.
        dtypes: precision of each array, which decides the size of its rounding.
    """

    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, np.dtype[np.floating]]

    @classmethod
    def of(cls, model: Arrays) -> "Layout":
        floats = {name: array for name, array in model.items() if array.dtype.kind == "f"}
        return cls(
            {name: array.shape for name, array in floats.items()},
            {name: array.dtype for name, array in floats.items()},
        )

    def slices(self) -> dict[str, slice]:
        places, position = {}, 0
        for name, shape in self.shapes.items():
            places[name] = slice(position, position + math.prod(shape))
            position = places[name].stop
        return places

    def vector(self, arrays: Arrays) -> Floats | None:
        """Return these arrays as one vector [P]; None if one is missing or has another shape."""
        parts = [np.zeros(0)]
        for name, shape in self.shapes.items():
            array = arrays.get(name)
            if array is None or array.shape != shape:
                return None
            parts.append(array.ravel())
        return np.concatenate(parts, dtype=np.float64)

    def units(self, before: Floats, after: Floats) -> Floats:
        """Return the unit in the last place [P] of each parameter, of the larger of two values."""
        parts = [np.zeros(0)]
        for name, part in self.slices().items():
            sizes = np.maximum(np.abs(before[part]), np.abs(after[part]))
            # A float64 sum may be beyond the type's range, where spacing is not a number.
            largest = float(np.finfo(self.dtypes[name]).max)
            parts.append(np.spacing(np.minimum(sizes, largest).astype(self.dtypes[name])))
        return np.concatenate(parts, dtype=np.float64)
