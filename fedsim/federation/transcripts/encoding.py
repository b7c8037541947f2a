"""The encoding of a round as JSON and arrays, and its decoding."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.federation.transcripts.records import (
    Arrays,
    Canary,
    NodeReply,
    ObservedRound,
    Scalar,
)

NUMERIC = "biuf"
"""Kinds of NumPy's types that a transcript keeps: booleans, integers and floating-point numbers."""


class _Shelf:
    """Collects the arrays of a round, by the names that its JSON has."""

    def __init__(self) -> None:
        self.arrays: dict[str, npt.NDArray[Any]] = {}

    def put(self, arrays: Arrays) -> dict[str, str]:
        """Return the names of arrays in the file, by their own names. Raises InputError."""
        return {name: self._place(name, array) for name, array in arrays.items()}

    def _place(self, name: str, array: npt.NDArray[Any]) -> str:
        array = np.asarray(array)
        if array.dtype.kind not in NUMERIC:
            raise InputError(
                f"array '{name}' holds {array.dtype}; a transcript keeps booleans, integers and "
                "floating-point numbers"
            )
        place = f"array{len(self.arrays)}"
        self.arrays[place] = array.astype(array.dtype.newbyteorder("<"), copy=False)
        return place


def packed_round(observed: ObservedRound) -> tuple[dict[str, Any], Arrays]:
    """Return a round as JSON values and arrays.

    Returns: its text, with the names of its arrays; and these arrays, little-endian.
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
        "unprotected": None if observed.unprotected is None else shelf.put(observed.unprotected),
        "aggregate": None if observed.aggregate is None else shelf.put(observed.aggregate),
        "participants": None if observed.participants is None else list(observed.participants),
        "mechanism": {name: _to_json(value) for name, value in observed.mechanism.items()},
        "canary": None if observed.canary is None else asdict(observed.canary),
    }
    return text, shelf.arrays


def unpacked_round(text: Mapping[str, Any], arrays: Arrays) -> ObservedRound:
    """Return the round of a file. Raises ValueError, or other errors of `reading.DAMAGE`."""
    if wrong := [name for name, array in arrays.items() if array.dtype.kind not in NUMERIC]:
        raise ValueError(f"array '{wrong[0]}' is not numeric")

    def taken(places: Mapping[str, Any]) -> Arrays:
        return {name: arrays[text_of(place)] for name, place in places.items()}

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
