"""The encoding of a round as JSON and arrays, and its decoding."""

from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adversaries.errors import InputError
from fedsim.federation.transcripts.records import (
    Arrays,
    Canary,
    NodeReply,
    ObservedRound,
    Scalar,
    Value,
)

NUMERIC = "biuf"
"""Kinds of NumPy's types that a transcript keeps: booleans, integers and floating-point numbers."""

Places = dict[str, str]
"""Names of arrays in the file, by their own names."""


class _Text(BaseModel):
    """Values of exactly these types; NaN and infinity as JavaScript writes them."""

    model_config = ConfigDict(strict=True, ser_json_inf_nan="constants")


class _Reply(_Text):
    node: int
    arrays: Places
    num_examples: float | None
    metrics: dict[str, Value]


class _Canary(_Text):
    coin: bool
    seed: Annotated[int, Field(ge=0, lt=2**128)]
    norm: float
    idle_norm: float


class _Round(_Text):
    """The text of a round's file; `recording` and `number` are its place."""

    recording: str
    number: int
    round: int
    model: Places
    replies: list[_Reply]
    unprotected: Places | None
    aggregate: Places | None
    participants: list[int] | None
    mechanism: dict[str, Scalar]
    canary: _Canary | None


def packed_round(observed: ObservedRound, recording: str, number: int) -> tuple[bytes, Arrays]:
    """Return a round as JSON and arrays.

    Returns: its text, with the names of its arrays; and these arrays, little-endian.
    Raises InputError if an array or a value has a kind that a transcript does not store.
    """
    stored: dict[str, npt.NDArray[Any]] = {}

    def put(arrays: Arrays) -> Places:
        return {name: place(name, np.asarray(array)) for name, array in arrays.items()}

    def place(name: str, array: npt.NDArray[Any]) -> str:
        if array.dtype.kind not in NUMERIC:
            raise InputError(
                f"array '{name}' holds {array.dtype}; a transcript keeps booleans, integers and "
                "floating-point numbers"
            )
        stored[f"array{len(stored)}"] = array.astype(array.dtype.newbyteorder("<"), copy=False)
        return f"array{len(stored) - 1}"

    try:
        text = _Round(
            recording=recording,
            number=number,
            round=int(observed.round),
            model=put(observed.model),
            replies=[
                _Reply(
                    node=int(node),
                    arrays=put(reply.arrays),
                    num_examples=_plain(reply.num_examples),
                    metrics={name: _plain(value) for name, value in reply.metrics.items()},
                )
                for node, reply in observed.replies.items()
            ],
            unprotected=None if observed.unprotected is None else put(observed.unprotected),
            aggregate=None if observed.aggregate is None else put(observed.aggregate),
            participants=None if observed.participants is None else list(observed.participants),
            mechanism={name: _plain(value) for name, value in observed.mechanism.items()},
            canary=None if observed.canary is None else _Canary(**asdict(observed.canary)),
        )
    except ValidationError as error:
        raise InputError(
            f"{complaint(error)}, which is no number, text or list of numbers"
        ) from None
    return text.model_dump_json().encode(), stored


def unpacked_round(text: bytes, arrays: Arrays, recording: str, number: int) -> ObservedRound:
    """Return the round of a file. Raises ValueError, or other errors of `reading.DAMAGE`."""
    if wrong := [name for name, array in arrays.items() if array.dtype.kind not in NUMERIC]:
        raise ValueError(f"array '{wrong[0]}' is not numeric")
    try:
        read = _Round.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(complaint(error)) from None
    if (read.recording, read.number) != (recording, number):
        raise ValueError("it is of another recording, or of another place in this one")

    def taken(places: Places) -> Arrays:
        return {name: arrays[place] for name, place in places.items()}

    replies = {
        entry.node: NodeReply(taken(entry.arrays), entry.num_examples, entry.metrics)
        for entry in read.replies
    }
    if len(replies) != len(read.replies):
        raise ValueError("a node replied twice")
    return ObservedRound(
        round=read.round,
        model=taken(read.model),
        replies=replies,
        unprotected=None if read.unprotected is None else taken(read.unprotected),
        aggregate=None if read.aggregate is None else taken(read.aggregate),
        participants=None if read.participants is None else tuple(read.participants),
        mechanism=read.mechanism,
        canary=None if read.canary is None else Canary(**vars(read.canary)),
    )


def complaint(error: ValidationError) -> str:
    """Return the first complaint of a schema, in a few words."""
    first = error.errors()[0]
    return f"'{'.'.join(map(str, first['loc']))}' is {repr(first['input'])[:80]}"


def _plain(value: Any) -> Any:
    """Return a number of NumPy as Python's."""
    return value.item() if isinstance(value, np.generic) else value
