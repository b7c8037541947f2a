"""The forms of the arrays in messages: names, types, shapes and finite values.

The header of an array is checked before the array is believed: a reply may come from anybody.
"""

import io
import math
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from flwr.app import Array, RecordDict

from fedsim.common import reading
from fedsim.common.foreign_text import brief
from fedsim.federation.protocol import messages

MOST_SHOWN = 60
"""Letters of a message's names that a complaint repeats."""

NO_HEADER = (
    *(ValueError, TypeError, LookupError, SyntaxError, EOFError, tokenize.TokenError),
    # Python's parser raises these for nesting that is too deep.
    *(RecursionError, MemoryError),
)
"""Errors that NumPy raises for an invalid header, which it reads as Python."""

Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class Form:
    """The form of one array.

    Attributes:
        dtype: its type; None for any numeric one.
        shapes: the allowed shapes; None in a shape stands for any length.
        infinite: whether infinity is allowed, as in log-odds without noise. NaN never is.
    """

    dtype: type | None
    shapes: tuple[Shape, ...]
    infinite: bool = False

    @classmethod
    def of(cls, dtype: type, *shape: int | None) -> "Form":
        return cls(dtype, (shape,))

    def check(self, data: bytes | Array, name: str) -> None:
        """Raise ValueError unless an array has this form, and as many bytes as it takes."""
        shape, dtype, size = _header(data, name)
        fits = any(
            len(allowed) == len(shape)
            and all(length in (None, own) for length, own in zip(allowed, shape, strict=True))
            for allowed in self.shapes
        )
        if not fits or (self.dtype is not None and dtype != np.dtype(self.dtype)):
            wanted = dtype if self.dtype is None else np.dtype(self.dtype)
            shapes = " or ".join(str(["any" if n is None else n for n in s]) for s in self.shapes)
            raise ValueError(f"its '{name}' is {dtype} {list(shape)}, not {wanted} {shapes}")
        if size != math.prod(shape) * dtype.itemsize:
            raise ValueError(
                f"its '{name}' has {size} bytes, which does not match {dtype} {list(shape)}"
            )

    def check_values(self, array: Array, name: str) -> None:
        """Raise ValueError unless an array that has this form has allowed values."""
        values = messages.decoded(array)
        if self.infinite and np.isnan(values).any():
            raise ValueError(f"its '{name}' contains NaN")
        if not self.infinite and not np.isfinite(values).all():
            raise ValueError(f"its '{name}' is not finite: NaN or infinity")


Forms = Mapping[str, Mapping[str, Form]]
"""The records of a message, and the form of each of their arrays."""


def check(content: RecordDict, needed: Forms) -> None:
    """Raise ValueError unless a message has the needed records of arrays, and no other."""
    records = messages.array_records(content)
    if unasked := sorted(records.keys() - needed.keys()):
        raise ValueError(f"it has a record {shown(unasked[0])}, which was not requested")
    for name, arrays in needed.items():
        if records.get(name, {}).keys() != arrays.keys():
            raise ValueError(
                f"its record '{name}' must have exactly these arrays: {', '.join(sorted(arrays))}"
            )
        for key, form in arrays.items():
            form.check(records[name][key], name)
            form.check_values(records[name][key], name)


def check_only(content: RecordDict, name: str, form: Form) -> None:
    """Raise ValueError unless a message has a record of one array, of this form."""
    record = messages.array_records(content).get(name)
    if record is None or len(record) != 1:
        raise ValueError(f"it has no record '{name}' of one array")
    (array,) = record.values()
    form.check(array, name)
    form.check_values(array, name)


def shown(name: str) -> str:
    """Return a name of a message, quoted and cut."""
    return repr(brief(name, MOST_SHOWN))


def _header(data: bytes | Array, name: str) -> tuple[tuple[int, ...], np.dtype[np.generic], int]:
    """Return the shape and the type in an array's header, and the number of bytes behind it.

    Raises ValueError if the data are not in NumPy's format, or hold Python objects.
    """
    if isinstance(data, messages.HeldArray):  # made in this process
        return data.shape, data.values.dtype, data.values.nbytes
    data = data.data if isinstance(data, Array) else data
    file = io.BytesIO(data)
    try:
        shape, dtype = reading.array_header(file)
        if not all(type(size) is int for size in shape):  # True is an int, and equal to 1
            raise ValueError
    except NO_HEADER:
        raise ValueError(f"its '{name}' is not an array") from None
    if dtype.kind not in "biuf":
        raise ValueError(f"its '{name}' is of type {dtype}, which is not numeric")
    return shape, dtype, len(data) - file.tell()
