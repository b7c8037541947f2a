"""Arrays as they arrive: finite, of the type and the shape that they must have."""

import io
import math
import tokenize
from collections.abc import Collection

import numpy as np
from flwr.app import Array, ArrayRecord, Message

from fedsim.federation.protocol import messages

NO_HEADER = (
    *(ValueError, TypeError, LookupError, SyntaxError, EOFError, tokenize.TokenError),
    # What is nested too deeply for Python's parser is one of these.
    *(RecursionError, MemoryError),
)
"""What NumPy raises for bytes that are not the header of an array, which it reads as Python."""


def check_array(
    reply: Message, name: str, shapes: Collection[tuple[int, ...]], dtype: type
) -> None:
    """Check that a record's one array is finite, of a type and one of some shapes.

    Raises ValueError if it is not.
    """
    record = messages.array_records(reply.content).get(name)
    if record is None or len(record) != 1:
        raise ValueError(f"it has no '{name}' of one array")
    (array,) = record.values()
    check_form(array, name, shapes, dtype)
    check_finite(record, name)


def check_form(
    data: bytes | Array,
    name: str,
    shapes: Collection[tuple[int, ...]],
    dtype: type[np.generic] | type,
) -> None:
    """Check that an array, or bytes in NumPy's format, is of a type and one of some shapes.

    Nothing of the size that it claims is allocated: its header is read, and its bytes counted. What
    else a Flower array says of itself beside these bytes does not matter, since nothing reads it.

    Raises ValueError if it is not.
    """
    shape, found, size = header(data, name)
    if shape not in set(shapes) or found != np.dtype(dtype):
        raise ValueError(
            f"its '{name}' is {found} {list(shape)}, not {np.dtype(dtype)} "
            f"{' or '.join(str(list(each)) for each in shapes)}"
        )
    if size != math.prod(shape) * found.itemsize:
        raise ValueError(f"its '{name}' has {size} bytes, which are not {found} {list(shape)}")


def check_finite(record: ArrayRecord, name: str) -> None:
    """Check that all arrays of a record are finite. Raises ValueError if one is not."""
    for array in messages.arrays_of(record).values():
        if not np.isfinite(array).all():
            raise ValueError(f"its '{name}' is not finite: NaN or infinity")


def header(data: bytes | Array, name: str) -> tuple[tuple[int, ...], np.dtype[np.generic], int]:
    """Return shape and type that an array in NumPy's format claims, and how many bytes it has.

    Raises ValueError if it is anything else, or holds Python objects.
    """
    if isinstance(data, messages.HeldArray):  # it was made in this process
        return data.shape, data.values.dtype, data.values.nbytes
    data = data.data if isinstance(data, Array) else data
    file = io.BytesIO(data)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        shape, _, dtype = readers[np.lib.format.read_magic(file)](file)
        if not all(type(size) is int for size in shape):  # True is an int, and equal to 1
            raise ValueError
    except NO_HEADER:
        raise ValueError(f"its '{name}' is no array") from None
    if dtype.kind not in "biuf":
        raise ValueError(f"its '{name}' is of type {dtype}")
    return shape, dtype, len(data) - file.tell()
