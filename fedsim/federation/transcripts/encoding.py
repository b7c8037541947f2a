"""The encoding of a round as JSON and arrays, and its decoding."""

from types import NoneType
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, ValidationError
from pydantic_core import PydanticSerializationError

from adversaries.errors import InputError
from fedsim.federation.transcripts.records import (
    Arrays,
    NodeReply,
    ObservedRound,
    Scalar,
    Value,
)

NUMERIC = "biuf"
"""Kinds of NumPy's types that a transcript keeps: booleans, integers and floating-point numbers."""


def _of(*kinds: type) -> BeforeValidator:
    """Return a check that ends at the first wrong entry: a schema would keep an error of each."""

    def check(entries: Any) -> Any:
        named = enumerate(entries) if isinstance(entries, list) else ()
        for name, value in entries.items() if isinstance(entries, dict) else named:
            if not isinstance(value, kinds):
                raise ValueError(f"'{str(name)[:80]}' is {repr(value)[:80]}")
        return entries

    return BeforeValidator(check)


Places = Annotated[dict[str, str], _of(str)]
"""Names of arrays in the file, by their own names."""


class _Text(BaseModel):
    """Values of exactly these types; NaN and infinity as JavaScript writes them."""

    model_config = ConfigDict(strict=True, ser_json_inf_nan="constants")


class _Reply(_Text):
    node: int
    arrays: Places
    num_examples: float | None
    metrics: Annotated[dict[str, Value], _of(bool, int, float, str, list, NoneType)]


class _Round(_Text):
    """The text of a round's file; `before` is the digest of the file ahead of it."""

    before: str
    number: int
    round: int
    model: Places
    replies: Annotated[list[_Reply], FailFast()]
    aggregate: Places | None
    participants: Annotated[list[int] | None, _of(int)]
    mechanism: Annotated[dict[str, Scalar], _of(bool, int, float, str)]


def packed_round(observed: ObservedRound, before: str, number: int) -> tuple[bytes, Arrays]:
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
            before=before,
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
            aggregate=None if observed.aggregate is None else put(observed.aggregate),
            participants=None if observed.participants is None else list(observed.participants),
            mechanism={name: _plain(value) for name, value in observed.mechanism.items()},
        )
    except ValidationError as error:
        raise InputError(
            f"{complaint(error)}, which is no number, text or list of numbers"
        ) from None
    try:
        return text.model_dump_json().encode(), stored
    except PydanticSerializationError:
        raise InputError("a text is no Unicode, which a transcript does not keep") from None


def unpacked_round(text: bytes, arrays: Arrays, before: str, number: int) -> ObservedRound:
    """Return the round of a file. Raises ValueError, or other errors of `reading.DAMAGE`."""
    if wrong := [name for name, array in arrays.items() if array.dtype.kind not in NUMERIC]:
        raise ValueError(f"array '{wrong[0]}' is not numeric")
    try:
        read = _Round.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(complaint(error)) from None
    if (read.before, read.number) != (before, number):
        raise ValueError("it does not follow the file before it")

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
        aggregate=None if read.aggregate is None else taken(read.aggregate),
        participants=None if read.participants is None else tuple(read.participants),
        mechanism=read.mechanism,
    )


def complaint(error: ValidationError) -> str:
    """Return the first complaint of a schema, in a few words."""
    first = error.errors(include_url=False)[0]
    return f"'{'.'.join(map(str, first['loc']))}' is {repr(first['input'])[:80]}"


def _plain(value: Any) -> Any:
    """Return numbers of NumPy as Python's, and a tuple as a list."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value
