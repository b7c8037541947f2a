"""Checks of arrays in messages: finite values, the type and the shape."""

import io
import math
import tokenize
from collections.abc import Collection

import numpy as np
from flwr.app import Array, ArrayRecord, Message

from fedsim.common import reading
from fedsim.federation.protocol import messages

NO_HEADER = (
    *(ValueError, TypeError, LookupError, SyntaxError, EOFError, tokenize.TokenError),
    # Python's parser raises these for nesting that is too deep.
    *(RecursionError, MemoryError),
)
"""Errors that NumPy raises for an invalid header, which it reads as Python."""


def check_array(
    reply: Message, name: str, shapes: Collection[tuple[int, ...]], dtype: type
) -> None:
    """Raise ValueError unless a record holds one finite array of a type and an allowed shape."""
    record = messages.array_records(reply.content).get(name)
    if record is None or len(record) != 1:
        raise ValueError(f"it has no record '{name}' of one array")
    (array,) = record.values()
    check_form(array, name, shapes, dtype)
    check_finite(record, name)


def check_form(
    data: bytes | Array,
    name: str,
    shapes: Collection[tuple[int, ...]],
    dtype: type[np.generic] | type,
) -> None:
    """Raise ValueError unless an array has a type and shape, and as many bytes as they take."""
    shape, own, size = header(data, name)
    if shape not in set(shapes) or own != np.dtype(dtype):
        raise ValueError(
            f"its '{name}' is {own} {list(shape)}, not {np.dtype(dtype)} "
            f"{' or '.join(str(list(each)) for each in shapes)}"
        )
    if size != math.prod(shape) * own.itemsize:
        raise ValueError(f"its '{name}' has {size} bytes, which does not match {own} {list(shape)}")


def check_finite(record: ArrayRecord, name: str) -> None:
    """Raise ValueError unless all arrays of a record are finite."""
    for array in messages.arrays_of(record).values():
        if not np.isfinite(array).all():
            raise ValueError(f"its '{name}' is not finite: NaN or infinity")


def header(data: bytes | Array, name: str) -> tuple[tuple[int, ...], np.dtype[np.generic], int]:
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
