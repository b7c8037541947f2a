"""What travels between the server and the clients, as Flower records.

Every request carries the model and a `Request`; what else it carries depends on whom it goes to.
All clients see the aggregate of the round before. Only the target client is told
which world each trial trains on; the adversary is told which pair it must tell apart, never which
of the two is true. Colluding clients disclose their noise to the adversary: it travels by way of
the server, which stands in for a private channel and uses none of it. In an oracle audit
(`audit.mode`) the replies carry a measurement beside the sum, from which the auditor computes the
belief: it undoes all protection, and is meant for simulated people or for clients who agreed to be
measured. With `audit.bayesian-pairs` they carry the norms or distances of sampled records'
gradients, unprotected, for the Bayesian accountant.
"""

import io
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from fedsim.game.round_game import RoundGame

REQUEST = "request"
MODEL = "model"
AGGREGATE = "aggregate"
WORLDS = "worlds"
SENSITIVITY = "sensitivity"
REPLY = "reply"
MEASUREMENT = "measurement"
DISCLOSED = "disclosed"
PARTICIPANTS = "participants"
SENT = "sent"
DISTANCES = "distances"
METRICS = "metrics"
DATA = "data"
MEASURES = "measures"

VERSION_1 = b"\x93NUMPY\x01\x00"
"""What the bytes of nearly every array begin with: NumPy's format, version 1.0."""

AUDITOR = -1
"""The partition that an auditor's node answers with: it holds no records."""


class Role(StrEnum):
    """What a client is in the game; the server decides and tells each client its own role only."""

    CLIENT = "client"
    TARGET_CLIENT = "target-client"
    ADVERSARY = "adversary"
    COLLUDER = "colluder"
    AUDITOR = "auditor"


@dataclass(frozen=True)
class Request:
    """The scalar part of a message to a client.

    Attributes:
        round: counts from 1.
        first_trial: of the trials that share the message, numbered over the whole campaign.
        trials: T, how many there are.
        noise_multiplier: sigma over the sensitivity.
        role: of the client in the game.
        record: position of the challenge record in D; -1 for a client whom it does not concern, and
            where all data of a client are the challenge.
        replacement: position in the pool of what D' has in its place; -1 as of `record`, or for
            nothing.
        target_client: who holds the target record, or is the target; -1 for a client whom it does
            not concern.
        earlier: how many rounds interrupted attempts at these trials released, each under noise of
            its own.
        released: how many rounds all trainings released before this attempt, each trial's by
            itself.
        begun: the round that this attempt begins with, later than 1 in a training that is resumed.
    """

    round: int
    first_trial: int
    trials: int
    noise_multiplier: float
    role: str = Role.CLIENT
    record: int = -1
    replacement: int = -1
    target_client: int = -1
    earlier: int = 0
    released: int = 0
    begun: int = 1

    def to_record(self) -> ConfigRecord:
        """Return the request as a Flower record."""
        return ConfigRecord({field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def from_content(cls, content: RecordDict) -> "Request":
        """Return the request of a message.

        Raises KeyError if there is none.
        Raises TypeError if it has other fields.
        """
        return cls(**dict(config_records(content)[REQUEST]))  # type: ignore[arg-type]

    @property
    def game(self) -> RoundGame:
        """What the round is about, as far as this client is told."""
        return RoundGame.of_message(
            self.round,
            self.trial_numbers,
            self.noise_multiplier,
            self.target_client,
            self.record,
            self.replacement,
        )

    @property
    def trial_numbers(self) -> range:
        """The trials that share this message."""
        return range(self.first_trial, self.first_trial + self.trials)


class HeldArray(Array):
    """A Flower array that has its values, and writes their bytes once they leave the process."""

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self.values = values.view()
        self.values.flags.writeable = False
        self.dtype, self.shape, self.stype = str(values.dtype), values.shape, "numpy.ndarray"

    @cached_property
    def data(self) -> bytes:  # type: ignore[override]
        """The values in NumPy's format."""
        return Array.from_numpy_ndarray(self.values).data

    def numpy(self) -> npt.NDArray[Any]:
        """Return the values; they cannot be written to."""
        return self.values


def array_record(**arrays: npt.NDArray[Any]) -> ArrayRecord:
    """Return named arrays as a Flower record; they may not be changed, since it shares them."""
    return ArrayRecord({name: HeldArray(array) for name, array in arrays.items()})


def arrays_of(record: ArrayRecord) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a Flower record by name; they cannot be written to.

    Raises ValueError if one is no array in NumPy's format.
    Raises TypeError if one says so of itself.
    """
    return {name: _decoded(array) for name, array in record.items()}


def array_records(content: RecordDict) -> dict[str, ArrayRecord]:
    """Return the records of arrays of a message: what Flower's own view of them costs more for."""
    return {name: each for name, each in content.items() if isinstance(each, ArrayRecord)}


def metric_records(content: RecordDict) -> dict[str, MetricRecord]:
    """Return the records of metrics of a message."""
    return {name: each for name, each in content.items() if isinstance(each, MetricRecord)}


def config_records(content: RecordDict) -> dict[str, ConfigRecord]:
    """Return the records of settings of a message."""
    return {name: each for name, each in content.items() if isinstance(each, ConfigRecord)}


def _decoded(array: Array) -> npt.NDArray[Any]:
    """Return an array as NumPy's own reader does, which parses every header anew."""
    if isinstance(array, HeldArray):
        return array.values
    data = array.data
    if array.stype != "numpy.ndarray" or data[:8] != VERSION_1:
        return array.numpy()
    begin = 10 + int.from_bytes(data[8:10], "little")
    shape, in_columns, dtype = _form(data[8:begin])
    possible = all(type(size) is int and 0 <= size <= sys.maxsize for size in shape)
    if not possible or math.prod(shape) * dtype.itemsize > len(data) - begin:
        raise ValueError(f"an array of shape {shape} in {len(data)} bytes")
    values = np.frombuffer(data, dtype, math.prod(shape), begin)
    return values.reshape(shape, order="F" if in_columns else "C")


@lru_cache(maxsize=1024)
def _form(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    return np.lib.format.read_array_header_1_0(io.BytesIO(header))


def only(record: ArrayRecord) -> npt.NDArray[Any]:
    """Return the array of a record that holds exactly one.

    Raises ValueError if it holds none, or several.
    """
    (array,) = arrays_of(record).values()
    return array


def partition(context: Context) -> int:
    """Return which of the clients a node is. Raises KeyError if its node config does not say."""
    return int(context.node_config["partition-id"])


def reply(
    message: Message,
    partition: int,
    arrays: Mapping[str, ArrayRecord] | None = None,
    **metrics: float,
) -> Message:
    """Return the reply of a node to a message.

    arrays: records of arrays by name; None for none.
    """
    content = RecordDict({**(arrays or {})})
    content[METRICS] = MetricRecord({"partition": partition, **metrics})
    return Message(content, reply_to=message)


def metric(reply: Message, name: str) -> float:
    """Return one scalar of a reply's metrics.

    Raises KeyError if it is not there.
    Raises TypeError if it is not one number.
    """
    return scalar(metric_records(reply.content)[METRICS], name)


def scalar(metrics: MetricRecord, name: str) -> float:
    """Return one scalar of a record of metrics.

    Raises KeyError if it is not there.
    Raises TypeError if it is not one number.
    """
    return float(metrics[name])  # type: ignore[arg-type]


def participants(content: RecordDict) -> tuple[int, ...]:
    """Return the clients whose messages are in the aggregate that a message brings, sorted.

    Raises KeyError if it does not say.
    Raises TypeError if it says it otherwise.
    """
    clients = config_records(content)[PARTICIPANTS]["clients"]
    return tuple(map(int, clients))  # type: ignore[arg-type]
