"""Readers of files from any source, with limited memory and known errors (`DAMAGE`)."""

import ast
import contextlib
import gzip
import json
import lzma
import math
import os
import stat
import struct
import tokenize
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError

DAMAGE = (
    ValueError,  # of every parser: UnicodeDecodeError, JSONDecodeError, TOMLDecodeError
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RuntimeError,  # RecursionError, NotImplementedError, and zipfile's for a password
    SyntaxError,  # of NumPy's headers and Pillow
    tokenize.TokenError,
    EOFError,
    MemoryError,
    OSError,  # also of gzip and Pillow
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)
"""All errors of a reader for bytes that are invalid, or cannot be read."""

MOST_JSON = 2**25
MOST_TOML = 2**18
MOST_DOTS = 200
"""In a line of TOML: tomllib's memory grows with the square of a dotted key's parts."""

UNPACKED = 2**28
RATIO = 64
"""A file may unpack to UNPACKED bytes, or to RATIO times its own size."""

LONGEST_REASON = 200

Arrays = dict[str, npt.NDArray[Any]]


def most_unpacked(packed: int) -> int:
    """Return the largest unpacked size of a packed file, in bytes."""
    return max(UNPACKED, RATIO * packed)


@contextlib.contextmanager
def damage(refusal: Callable[[str], InputError]) -> Iterator[None]:
    """Turn an error of a damaged file within the block into the error that `refusal` makes."""
    try:
        yield
    except InputError:
        raise
    except DAMAGE as error:
        raise refusal(reason(error)) from None


def reason(error: BaseException) -> str:
    """Return the reason of an error in a few words of one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, MemoryError):
        return "it does not fit into memory"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, KeyError):
        return f"it has no {error}"[:LONGEST_REASON]
    return (" ".join(str(error).split()) or type(error).__name__)[:LONGEST_REASON]


def opened(path: Path) -> BufferedReader:
    """Return a file opened to read, which is neither a pipe nor a device.

    Reading a pipe or a device may wait forever, or never end.

    Raises OSError if it cannot be opened.
    Raises ValueError if it is not a regular file.
    """
    # Without O_NONBLOCK, opening a pipe waits for its other end.
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError("it is not a regular file")
    return file


def content(path: Path, most: int) -> bytes:
    """Return the bytes of a file. Raises OSError, and ValueError for more bytes or a device."""
    with opened(path) as file:
        return _limited(file, most)


def unpacked(path: Path) -> bytes:
    """Return the unpacked bytes of a .gz file. Raises an error of `DAMAGE`."""
    with opened(path) as file, gzip.GzipFile(fileobj=file) as packed:
        return _limited(packed, most_unpacked(os.fstat(file.fileno()).st_size))


def json_value(text: bytes | str) -> Any:
    """Return the value of strict JSON, without NaN. Raises an error of `DAMAGE`."""
    return json.loads(text, parse_constant=_no_number)


def json_object(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file. Raises an error of `DAMAGE`."""
    value = json_value(content(path, MOST_JSON))
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


def toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file.

    Raises FileNotFoundError if the file is missing.
    Raises InputError if it cannot be read, or is no TOML.
    """
    try:
        return toml_of(content(path, MOST_TOML))
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read '{path}': {reason(error)}") from None
    except DAMAGE as error:
        raise InputError(f"'{path}' is not valid TOML: {reason(error)}") from None


def toml_of(text: bytes) -> dict[str, Any]:
    """Return the tables of TOML text. Raises an error of `DAMAGE`."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(b".") > MOST_DOTS:
            raise ValueError(f"line {number} has more than {MOST_DOTS} dots")
    return tomllib.loads(text.decode())


def arrays(path: Path, only: Collection[str] | None = None) -> Arrays:
    """Return arrays of a .npz file, `only` some if not None. Raises an error of `DAMAGE`."""
    with opened(path) as file:
        if file.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX:
            raise ValueError("it is a single array")
        return _arrays(file, only)


def _arrays(file: BinaryIO, only: Collection[str] | None) -> Arrays:
    with zipfile.ZipFile(file) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if len(members) < len(archive.infolist()):
            raise ValueError("two of its arrays have the same name")
        if len(members) != _listed(file, len(archive.comment)):
            raise ValueError("its list of arrays does not have the stated length")
        wanted = members
        if only is not None:
            wanted = {name: members[name] for name in only if name in members}
        size = sum(each.file_size for each in wanted.values())
        if size > most_unpacked(os.fstat(file.fileno()).st_size):
            raise ValueError(f"it unpacks to {size} bytes, more than {RATIO} times its own size")
        return {name: _array(archive, info) for name, info in wanted.items()}


END = 22
"""Bytes of a zip file's last record, without its comment."""


def _listed(file: BinaryIO, comment: int) -> int:
    """Return the number of members that an archive's last record states."""
    file.seek(-END - comment, os.SEEK_END)
    return int.from_bytes(file.read(END)[10:12], "little")


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> npt.NDArray[Any]:
    """Return an array of an archive, after a check that its size matches its header."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"'{info.filename}' is compressed by a method that NumPy does not use")
    with archive.open(info) as member:
        shape, dtype = array_header(member)
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject:
            raise ValueError(f"'{info.filename}' holds Python objects")
        if size != info.file_size - member.tell() or max(shape, default=0) > info.file_size:
            raise ValueError(f"'{info.filename}' is not as large as its header says")
    # Open it again, and read beyond its end. zipfile forgets the checksum at a seek and compares it
    # only at the end of the packed data, which comes after the last byte of the array.
    with archive.open(info) as member:
        array: npt.NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
        if member.read(1):
            raise ValueError(f"'{info.filename}' is not as large as its header says")
    return array


HEADERS = {
    (1, 0): (2, np.lib.format.read_array_header_1_0),
    (2, 0): (4, np.lib.format.read_array_header_2_0),
}
"""By version of NumPy's format: the bytes of the header's length, and NumPy's reader."""

LONGEST_HEADER = 10_000
"""Most bytes of a header, as for NumPy."""


def array_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and type of an array; the file is then at its first value.

    Raises an error of `DAMAGE`, also for a header that only Python 2 writes. NumPy would read it in
    another way, with a warning.
    """
    version = np.lib.format.read_magic(file)
    if version not in HEADERS:
        raise ValueError(f"it has the unknown version {version} of NumPy's format")
    size, _ = HEADERS[version]
    stated = file.read(size)
    length = int.from_bytes(stated, "little")
    if length > LONGEST_HEADER:
        raise ValueError(f"its header has more than {LONGEST_HEADER} bytes")
    return _said(version, stated, file.read(length))


@lru_cache(maxsize=256)
def _said(
    version: tuple[int, int], stated: bytes, header: bytes
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return what a header says; the arrays of a transcript have few different ones."""
    ast.literal_eval(header.decode("latin1"))
    shape, _, dtype = HEADERS[version][1](BytesIO(stated + header))
    return shape, dtype


def _limited(file: BinaryIO | gzip.GzipFile, most: int) -> bytes:
    data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"it has more than {most} bytes")
    return data


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")
