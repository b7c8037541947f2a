"""The encoding of a round as JSON and arrays, and its decoding."""

import math
import struct
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.federation.transcripts.records import (
    Arrays,
    Canary,
    NodeReply,
    ObservedRound,
    Scalar,
    TranscriptFacts,
)

LARGEST_TEXT = 2**26
MOST_ARRAYS = 2**17
MOST_DIMENSIONS = 32


def facts_to_json(facts: TranscriptFacts) -> dict[str, Any]:
    """Return the header's content as JSON values."""
    return {**vars(facts), "versions": dict(facts.versions)}


class _Shelf:
    """Collects the arrays of a record. Their descriptions go into the record's JSON."""

    def __init__(self) -> None:
        self.arrays: list[npt.NDArray[Any]] = []
        self.table: list[dict[str, Any]] = []

    def put(self, arrays: Arrays) -> dict[str, int]:
        """Return the positions of arrays in the record, by name. Raises InputError."""
        return {name: self._place(name, array) for name, array in arrays.items()}

    def _place(self, name: str, array: npt.NDArray[Any]) -> int:
        array = np.asarray(array)
        if array.dtype.kind not in "biuf" or array.ndim > MOST_DIMENSIONS:
            raise InputError(
                f"array '{name}' holds {array.dtype}; a transcript keeps booleans, integers and "
                "floating-point numbers"
            )
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        self.table.append({"dtype": little.dtype.str, "shape": list(array.shape)})
        self.arrays.append(little)
        return len(self.arrays) - 1


def packed_round(observed: ObservedRound) -> tuple[dict[str, Any], list[npt.NDArray[Any]]]:
    """Return a round as JSON values and arrays.

    Returns: its text, with positions in a table of arrays; and the arrays in the table's order,
    little-endian.
    Raises InputError if an array or a value has a kind that a transcript does not store.
    """
    shelf = _Shelf()
    text: dict[str, Any] = {
        "round": int(observed.round),
        "model": shelf.put(observed.model),
        "replies": [
            {
                "node": int(node),
                "arrays": shelf.put(reply.arrays),
                "num_examples": _to_json(reply.num_examples),
                "metrics": {name: _to_json(value) for name, value in reply.metrics.items()},
            }
            for node, reply in observed.replies.items()
        ],
        "own": shelf.put(observed.own),
        "unprotected": None if observed.unprotected is None else shelf.put(observed.unprotected),
        "aggregate": None if observed.aggregate is None else shelf.put(observed.aggregate),
        "participants": None if observed.participants is None else list(observed.participants),
        "mechanism": {name: _to_json(value) for name, value in observed.mechanism.items()},
        "canary": None if observed.canary is None else asdict(observed.canary),
    }
    text["arrays"] = shelf.table
    return text, shelf.arrays


def unpacked(payload: memoryview) -> tuple[dict[str, Any], list[npt.NDArray[Any]]]:
    """Return the text and the arrays of a record.

    payload: an 8-byte length, JSON of that length, then the bytes of the arrays.
    Raises ValueError if the lengths disagree; other errors of `reading.DAMAGE` for invalid JSON.
    """
    if len(payload) < 8:
        raise ValueError("it is too short")
    (length,) = struct.unpack("<Q", payload[:8])
    if length > min(LARGEST_TEXT, len(payload) - 8):
        raise ValueError("its text is longer than the record")
    text = reading.json_value(bytes(payload[8 : 8 + length]))
    if not isinstance(text, dict):
        raise ValueError("its text is not a JSON object")
    table, offset, arrays = text.get("arrays", []), 8 + length, []
    if len(table) > MOST_ARRAYS:
        raise ValueError(f"it has {len(table)} arrays, more than {MOST_ARRAYS}")
    for entry in table:
        dtype, shape = _dtype(entry["dtype"]), [whole_of(size) for size in entry["shape"]]
        if len(shape) > MOST_DIMENSIONS or any(size < 0 for size in shape):
            raise ValueError(f"an array has the shape {shape}")
        count = math.prod(shape)
        if count * dtype.itemsize > len(payload) - offset:
            raise ValueError("its arrays are larger than the record")
        array = np.frombuffer(payload, dtype, count, offset).reshape(shape)
        offset += array.nbytes
        arrays.append(array)
    if offset != len(payload):
        raise ValueError("there are bytes after its arrays")
    return text, arrays


def unpacked_round(text: Mapping[str, Any], arrays: list[npt.NDArray[Any]]) -> ObservedRound:
    """Return the round of a record. Raises ValueError, or other errors of `reading.DAMAGE`."""

    def taken(places: Mapping[str, Any]) -> Arrays:
        positions = {name: whole_of(place) for name, place in places.items()}
        if any(position < 0 for position in positions.values()):
            raise ValueError("an array has a negative position")
        return {name: arrays[position] for name, position in positions.items()}

    canary, participants = text["canary"], text["participants"]
    replies = {
        whole_of(entry["node"]): NodeReply(
            taken(entry["arrays"]),
            None if entry["num_examples"] is None else _real(entry["num_examples"]),
            {name: _from_json(value) for name, value in entry["metrics"].items()},
        )
        for entry in text["replies"]
    }
    if len(replies) != len(text["replies"]):
        raise ValueError("a node replied twice")
    return ObservedRound(
        round=whole_of(text["round"]),
        model=taken(text["model"]),
        replies=replies,
        own=taken(text["own"]),
        unprotected=None if text["unprotected"] is None else taken(text["unprotected"]),
        aggregate=None if text["aggregate"] is None else taken(text["aggregate"]),
        participants=None
        if participants is None
        else tuple(whole_of(node) for node in participants),
        mechanism={name: _scalar(value) for name, value in text["mechanism"].items()},
        canary=None
        if canary is None
        else Canary(
            canary["coin"] is True,
            _seed(canary["seed"]),
            _real(canary["norm"]),
            _real(canary["idle_norm"]),
        ),
    )


def _dtype(name: Any) -> np.dtype[Any]:
    # Compared by name, so that structured and object dtypes never reach NumPy.
    if not isinstance(name, str) or name[1:] not in DTYPES or name[0] not in "<|":
        raise ValueError(f"an array has the dtype {name!r}, which is not numeric")
    return np.dtype(name)


DTYPES = {"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"}


def _to_json(value: Any) -> Any:
    """Return a metric as strict JSON, where NaN and infinity become {"float": "nan"}."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(f"{value!r} is not a number, text or list of numbers")


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_scalar(item) for item in value]
    return None if value is None else _scalar(value)


def _scalar(value: Any) -> Scalar:
    if isinstance(value, dict):
        if value.get("float") not in ("nan", "inf", "-inf"):
            raise ValueError("a number is malformed")
        return float(value["float"])
    if not isinstance(value, bool | int | float | str):
        raise ValueError("a value is neither number nor text")
    return value


def whole_of(value: Any) -> int:
    """Return a value that must be a whole number. Raises ValueError for another value."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{value!r} stands where a whole number belongs")
    return value


def _seed(value: Any) -> int:
    if not 0 <= whole_of(value) < 2**128:
        raise ValueError(f"{value} is not a seed")
    return whole_of(value)


def _real(value: Any) -> float:
    value = _scalar(value)
    if isinstance(value, str):
        raise ValueError(f"{value!r} stands where a number belongs")
    return float(value)


def text_of(value: Any) -> str:
    """Return a value that must be text. Raises ValueError for another value."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} stands where text belongs")
    return value
