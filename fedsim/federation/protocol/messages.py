"""Messages between the server and the clients, as Flower records.

Only the target's client receives the world of each trial, and only the adversary the pair to
distinguish and the colluders' noise; the server relays that noise and does not use it.
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
METRICS = "metrics"
DATA = "data"

VERSION_1 = b"\x93NUMPY\x01\x00"
"""First bytes of nearly every array: NumPy's format, version 1.0."""

AUDITOR = -1
"""Partition in the replies of an auditor's node, which holds no records."""


class Role(StrEnum):
    """The role of a client in the game. Each client receives only its own role."""

    CLIENT = "client"
    TARGET_CLIENT = "target-client"
    ADVERSARY = "adversary"
    COLLUDER = "colluder"
    AUDITOR = "auditor"


@dataclass(frozen=True)
class Request:
    """The scalar part of a message to a client.

    -1: hidden, since the client's role does not need it.

    Attributes:
        record: position of the target record in D; -1 also if the target is a client.
        replacement: position of the replacement in the pool; -1 also if there is none.
        earlier: rounds that interrupted attempts at these trials released, each with its own noise.
        released: rounds that all trainings released before this attempt, over all trials.
        begun: first round of this attempt; above 1 in a training that is resumed.
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
        return ConfigRecord({field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def from_content(cls, content: RecordDict) -> "Request":
        """Return the request of a message. Raises KeyError or TypeError without one."""
        return cls(**dict(config_records(content)[REQUEST]))  # type: ignore[arg-type]

    @property
    def game(self) -> RoundGame:
        """The round's game, as far as this client may know it."""
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
        return range(self.first_trial, self.first_trial + self.trials)


class HeldArray(Array):
    """A Flower array with its values. It encodes them only when they leave the process."""

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self.values = values.view()
        self.values.flags.writeable = False
        self.dtype, self.shape, self.stype = str(values.dtype), values.shape, "numpy.ndarray"

    @cached_property
    def _sent(self) -> Array:
        """Flower's own array. What is sent names the kind of an object by its class."""
        return Array.from_numpy_ndarray(self.values)

    @property
    def data(self) -> bytes:  # type: ignore[override]
        return self._sent.data

    def slice_array(self) -> list[tuple[str, Any]]:
        return self._sent.slice_array()

    def deflate(self) -> bytes:
        return self._sent.deflate()

    def numpy(self) -> npt.NDArray[Any]:
        return self.values


def array_record(**arrays: npt.NDArray[Any]) -> ArrayRecord:
    """Return named arrays as a Flower record. The record shares them, so do not change them."""
    record = ArrayRecord()  # its constructor would copy each array, and encode it
    for name, array in arrays.items():
        record[name] = HeldArray(array)
    return record


def arrays_of(record: ArrayRecord) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a Flower record by name. They are read-only.

    Raises ValueError if an array is not in NumPy's format.
    Raises TypeError if an array names another format.
    """
    return {name: decoded(array) for name, array in record.items()}


def array_records(content: RecordDict) -> dict[str, ArrayRecord]:
    """Return a message's records of arrays. Flower's own view of them is slower."""
    return {name: each for name, each in content.items() if isinstance(each, ArrayRecord)}


def metric_records(content: RecordDict) -> dict[str, MetricRecord]:
    return {name: each for name, each in content.items() if isinstance(each, MetricRecord)}


def config_records(content: RecordDict) -> dict[str, ConfigRecord]:
    return {name: each for name, each in content.items() if isinstance(each, ConfigRecord)}


def decoded(array: Array) -> npt.NDArray[Any]:
    """Return an array as NumPy's own reader would, with the headers parsed once."""
    if isinstance(array, HeldArray):
        return array.values
    data = array.data
    if array.stype != "numpy.ndarray" or data[:8] != VERSION_1:
        return array.numpy()
    # Version 1.0: six bytes of magic, two of version, two of the header's length, and the header.
    begin = 10 + int.from_bytes(data[8:10], "little")
    shape, in_columns, dtype = _header(data[8:begin])
    # A forged header may name more data than there are, or sizes whose product overflows in NumPy.
    possible = all(type(size) is int and 0 <= size <= sys.maxsize for size in shape)
    if not possible or math.prod(shape) * dtype.itemsize > len(data) - begin:
        raise ValueError(f"an array of shape {shape} in {len(data)} bytes")
    values = np.frombuffer(data, dtype, math.prod(shape), begin)
    return values.reshape(shape, order="F" if in_columns else "C")


@lru_cache(maxsize=1024)
def _header(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    return np.lib.format.read_array_header_1_0(io.BytesIO(header))


def only(record: ArrayRecord) -> npt.NDArray[Any]:
    """Return the only array of a record. Raises ValueError if it has none, or several."""
    (array,) = arrays_of(record).values()
    return array


def partition(context: Context) -> int:
    """Return the client's number of a node. Raises KeyError if its node config has none."""
    return int(context.node_config["partition-id"])


def reply(
    message: Message,
    partition: int,
    arrays: Mapping[str, ArrayRecord] | None = None,
    **metrics: float,
) -> Message:
    """Return the reply of a node to a message."""
    content = RecordDict({**(arrays or {})})
    content[METRICS] = MetricRecord({"partition": partition, **metrics})
    return Message(content, reply_to=message)


def participants(content: RecordDict) -> tuple[int, ...]:
    """Return the clients whose messages are in a message's aggregate, sorted.

    Raises KeyError if the message does not list them.
    Raises TypeError if the list is malformed.
    """
    clients = config_records(content)[PARTICIPANTS]["clients"]
    return tuple(map(int, clients))  # type: ignore[arg-type]
