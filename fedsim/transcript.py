"""Transcripts: what one vantage point saw of a federation, round by round, in one file.

A transcript is append-only. Each record carries a SHA-256 checksum chained to that of the record
before it, so that nothing can be changed, left out or put in unnoticed by accident. A checksum has
no key: it is no protection from somebody who rewrites the whole file. A writer that was killed
leaves a torn last record, which readers drop and the next writer cuts off; any other damage is an
error. Nothing in a transcript is executed, and no length in it is believed beyond the bytes that
are there. The byte layout is in docs/transcripts.md.
"""

import fcntl
import hashlib
import io
import json
import math
import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fedsim import private_files, reading
from fedsim.errors import InputError

MAGIC = b"fedsim transcript\n"
VERSION = 1
VANTAGES = ("server", "participant", "auditor")

UNITS = ("client", "record")
"""Whom a claim protects: a client, with its whole update, or a record of a client's data."""

AUDITOR = "fedsim auditor"
"""Who recorded, in the header of the transcript of an auditor's node (`fedsim.auditor`)."""

# A record: kind, payload length, 8 bytes of a checksum of these two; the payload; its checksum.
# The short checksum tells a length that was damaged from a record that was not finished.
PREFIX = struct.Struct("<4sQ")
GUARD, DIGEST = 8, 32
HEADER, ROUND, END = b"HEAD", b"ROND", b"STOP"

LARGEST_RECORD = 2**36
LARGEST_TEXT = 2**26
MOST_ARRAYS = 2**17
MOST_DIMENSIONS = 32

Arrays = Mapping[str, npt.NDArray[Any]]
Scalar = bool | int | float | str
Value = Scalar | None | list[int] | list[float]


@dataclass(frozen=True)
class Facts:
    """Who recorded what, in the first record of a transcript.

    vantage: "server" (sees every reply), "participant" (sees global models and its own messages) or
        "auditor" (a participant that joined to audit)
    recorder: the program or mod that recorded; app: name of the recorded Flower app
    node: partition of a participant or auditor, its node id if it has none; None for the server
    run: the run that was recorded, where its recorder knows it
    versions: of the packages that matter, by name

    Raises InputError for another vantage.
    """

    vantage: str
    recorder: str
    app: str = ""
    node: int | None = None
    run: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.vantage not in VANTAGES:
            raise InputError(
                f"the vantage is '{self.vantage}'; a transcript is of one of {', '.join(VANTAGES)}"
            )


@dataclass(frozen=True)
class Reply:
    """What one node sent: its model, the number of examples behind it (None if it sent none)."""

    arrays: Arrays
    num_examples: float | None = None
    metrics: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Canary:
    """A consented canary: the sender added a direction to its model, long or short by a fair coin.

    coin: whether it was the long one; seed: of the direction (`adversaries.canaries.direction`)
    norm, idle_norm: Euclidean length of what was added for either side of the coin
    """

    coin: bool
    seed: int
    norm: float
    idle_norm: float


@dataclass(frozen=True)
class ObservedRound:
    """What a vantage point saw of one round.

    round: the number that the strategy gave it
    model: the global model before the round, by name; empty where it was not seen
    replies: by node id, as they reached the server and before it clipped them; empty elsewhere
    own: the model that a participant sent; empty where it sent none
    unprotected: that model before a local mechanism clipped it and added noise, if there was one
    aggregate: the global model after the round; None where it was not seen (a participant sees it
        as the model of the next round)
    participants: the node ids that were asked to train, None where unknown
    mechanism: the noise configuration in force: "strategy", "noise_multiplier", "clipping_norm",
        "noise_clipping_norm" (what the noise was scaled to), "num_sampled_clients",
        "adaptive" (whether the clipping norm follows a noisy count of clipped updates),
        "clipped_count_std" (of that noise; where "adaptive"),
        "weighted_by" and "clipping" ("server" or "client") for a strategy; "aggregation": "mean" if
        Flower's own code releases the plain mean, "declared" if clipping and noise were declared
        rather than read, else "other"; "unit" (one of `UNITS`) if it was declared;
        "local_clipping_norm", "local_sensitivity", "local_epsilon", "local_delta" for a local one;
        "client_epsilon" and "client_epsilon_metric" if it reports one; absent keys are unknown
    canary: None where the sender hid none
    """

    round: int
    model: Arrays = field(default_factory=dict)
    replies: Mapping[int, Reply] = field(default_factory=dict)
    own: Arrays = field(default_factory=dict)
    unprotected: Arrays | None = None
    aggregate: Arrays | None = None
    participants: tuple[int, ...] | None = None
    mechanism: Mapping[str, Scalar] = field(default_factory=dict)
    canary: Canary | None = None


@dataclass(frozen=True)
class Transcript:
    """A transcript as it was found.

    ended: whether the recorder said that there is no more to come
    incomplete: why rounds are missing, as the recorder said; "" if nothing failed
    torn: how many bytes of an unfinished last record were dropped
    """

    facts: Facts
    rounds: tuple[ObservedRound, ...]
    ended: bool
    incomplete: str
    torn: int


class Writer:
    """Appends rounds to a transcript, which only its user may read (0600): updates tell of people.

    A file that exists is continued if its facts are these, after a torn last record was cut off,
    and a last record that says that the run may be taken up again. Each record is on the disk when
    `append` returns. Raises InputError if the file is no transcript, is damaged, has ended, holds
    other facts, or is being written by somebody else.
    """

    def __init__(self, path: Path, facts: Facts) -> None:
        self.path = path
        try:
            descriptor = private_files.opened_own(private_files.as_named(path), os.O_RDWR)
        except OSError as error:
            raise InputError(
                f"cannot write the transcript '{path}': {error.strerror}; name another file"
            ) from None
        # Unbuffered: nothing of a record that failed is left to be written later.
        self._file: io.FileIO = os.fdopen(descriptor, "r+b", buffering=0)
        try:
            self._lock()
            self._position, self._digest = self._continued(facts)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, observed: ObservedRound) -> None:
        """Append one round. Raises InputError for arrays that are not numeric, OSError."""
        self._append(ROUND, *_packed_round(observed))

    def end(self, incomplete: str = "", *, resumable: bool = False) -> None:
        """Say that nothing follows, and why rounds are missing if they are; close the file.

        resumable: whether another writer may go on all the same, because what ended was the run and
            not the recording
        """
        self._append(END, {"incomplete": incomplete, "resumable": resumable}, [])
        self.close()

    def close(self) -> None:
        """Close the file; it may be continued."""
        self._file.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                f"the transcript '{self.path}' is being written by another process; give every "
                "recorder a file of its own"
            ) from None

    def _continued(self, facts: Facts) -> tuple[int, bytes]:
        """Return where to write and the checksum before it; write the header of a new file."""
        if self._file.seek(0, os.SEEK_END) < len(MAGIC) + 4:
            # New, or killed within its first bytes.
            beginning = _beginning()
            if not beginning.startswith(_start(self._file)):
                raise InputError(f"'{self.path}' is no fedsim transcript; name another file")
            self._file.seek(0)
            _write(self._file, beginning)
            self._file.truncate()
            self._position, self._digest = len(beginning), hashlib.sha256(beginning).digest()
            self._append(HEADER, _facts_to_json(facts), [])
            return self._position, self._digest
        scan = _Scan(self._file, self.path)
        position, digest = scan.position, scan.digest
        found: Facts | None = None
        for record in scan.records(only=(HEADER, END)):
            if record.kind == END:
                if not record.resumable():
                    raise InputError(f"the transcript '{self.path}' has ended; name another file")
                break
            if record.kind == HEADER:
                found = record.facts()
            position, digest = scan.position, scan.digest
        if found is not None and found != facts:
            raise InputError(
                f"the transcript '{self.path}' is of another recording; name another file"
            )
        self._file.seek(position)
        self._file.truncate()
        self._position, self._digest = position, digest
        if found is None:
            self._append(HEADER, _facts_to_json(facts), [])
        return self._position, self._digest

    def _append(self, kind: bytes, text: Mapping[str, Any], arrays: list[npt.NDArray[Any]]) -> None:
        document = json.dumps(text, allow_nan=False, separators=(",", ":")).encode()
        pieces = [struct.pack("<Q", len(document)), document]
        pieces += [array.tobytes() for array in arrays]
        length = sum(len(piece) for piece in pieces)
        if length > LARGEST_RECORD or len(document) > LARGEST_TEXT:
            raise InputError(f"a record of {length} bytes is too large for a transcript")
        prefix = PREFIX.pack(kind, length)
        digest = hashlib.sha256(self._digest + prefix)
        try:
            self._file.seek(self._position)
            _write(self._file, prefix + _guard(self._digest, prefix))
            for piece in pieces:
                digest.update(piece)
                _write(self._file, piece)
            _write(self._file, digest.digest())
            os.fsync(self._file.fileno())
        except BaseException:
            # A full disk, or Ctrl-C: the record is torn, and a shorter one must not be written into
            # it.
            os.ftruncate(self._file.fileno(), self._position)
            raise
        self._position = self._file.tell()
        self._digest = digest.digest()


class Reader:
    """Reads a transcript round by round, as far as it goes; it may be growing.

    facts: of the header; ended, incomplete: as in `Transcript`, of what was read so far. Raises
    InputError for a file that is missing, damaged, or ends before its header.
    """

    def __init__(self, path: Path) -> None:
        self._file = _opened(path)
        self.ended, self.incomplete = False, ""
        try:
            self._scan = _Scan(self._file, path)
            header = next(self._scan.records(), None)
            if header is None:
                raise _empty(path)
            self.facts = header.facts()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def rounds(self) -> Iterator[ObservedRound]:
        """Yield the whole rounds that were not read yet. Raises InputError, naming the record."""
        for record in self._scan.records():
            if record.kind == END:
                self.ended, self.incomplete = True, record.incomplete()
            else:
                yield record.round()

    @property
    def torn(self) -> int:
        """How many bytes lie behind the last whole record that was read."""
        return os.fstat(self._file.fileno()).st_size - self._scan.position


def read(path: Path) -> Transcript:
    """Read a whole transcript. Raises InputError for a missing or damaged one, naming the record.

    A torn last record is dropped, and counted in `torn`.
    """
    with Reader(path) as reader:
        rounds = tuple(reader.rounds())
        return Transcript(reader.facts, rounds, reader.ended, reader.incomplete, reader.torn)


def follow(
    path: Path,
    *,
    interval: float = 0.5,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[ObservedRound]:
    """Yield the rounds of a transcript that is being written, each as soon as it is whole.

    Ends when the recorder says so, or when `stop` returns True and nothing whole is left. Looks
    again every `interval` seconds. Raises InputError as `read` does.
    """
    if not wait_for_header(path, interval=interval, stop=stop):
        return
    with Reader(path) as reader:
        while True:
            stopping = stop()
            yield from reader.rounds()
            if reader.ended or stopping:
                return
            time.sleep(interval)


def wait_for_header(
    path: Path, *, interval: float = 0.5, stop: Callable[[], bool] = lambda: False
) -> bool:
    """Wait until a transcript has its header; return False if `stop` returned True before that.

    Raises InputError as `Reader` does.
    """
    while not _has_header(path):
        if stop():
            return False
        time.sleep(interval)
    return True


def has_ended(path: Path) -> bool:
    """Whether a recorder said that nothing follows. Raises InputError as `Reader` does."""
    with _opened(path) as file:
        return any(record.kind == END for record in _Scan(file, path).records(only=()))


def _has_header(path: Path) -> bool:
    """Whether the header of a transcript is whole. Raises InputError as `Reader` does."""
    with _opened(path) as file:
        if os.fstat(file.fileno()).st_size < len(MAGIC) + 4:
            return False
        return next(_Scan(file, path).records(), None) is not None


@dataclass(frozen=True)
class _Record:
    """A record whose checksum fitted; `place` names it in messages."""

    kind: bytes
    payload: memoryview
    place: str

    def facts(self) -> Facts:
        text, _ = self._unpacked()
        try:
            if self.kind != HEADER:
                raise ValueError("it should be the header")
            return Facts(
                **{name: _text(text[name]) for name in ("vantage", "recorder", "app", "run")},
                node=None if text["node"] is None else _whole(text["node"]),
                versions={_text(name): _text(value) for name, value in text["versions"].items()},
            )
        except reading.DAMAGE as error:
            raise self._malformed(error) from None

    def incomplete(self) -> str:
        text, _ = self._unpacked()
        return str(text.get("incomplete", ""))

    def resumable(self) -> bool:
        text, _ = self._unpacked()
        return text.get("resumable") is True

    def round(self) -> ObservedRound:
        text, arrays = self._unpacked()
        try:
            return _unpacked_round(text, arrays)
        except reading.DAMAGE as error:
            raise self._malformed(error) from None

    def _unpacked(self) -> tuple[dict[str, Any], list[npt.NDArray[Any]]]:
        try:
            return _unpacked(self.payload)
        except reading.DAMAGE as error:
            raise self._malformed(error) from None

    def _malformed(self, error: Exception) -> InputError:
        return InputError(
            f"{self.place} is malformed: {reading.reason(error)}; it cannot be audited"
        )


class _Scan:
    """Walks over the whole records of a file, and remembers where it stands."""

    def __init__(self, file: io.FileIO, path: Path) -> None:
        self._file, self._path, self._count, self._ended = file, path, 0, False
        beginning = _beginning()
        start = _start(file)
        if start[: len(MAGIC)] != MAGIC:
            raise InputError(
                f"'{path}' is no fedsim transcript; give a file that a recorder of fedsim wrote"
            )
        (version,) = struct.unpack("<I", start[len(MAGIC) :].ljust(4, b"\0"))
        if version != VERSION:
            raise InputError(
                f"the transcript '{path}' has version {version}; this fedsim reads version "
                f"{VERSION}: use the fedsim that wrote it, or a newer one"
            )
        self.position, self.digest = len(beginning), hashlib.sha256(beginning).digest()

    def records(self, only: Sequence[bytes] = (HEADER, ROUND, END)) -> Iterator[_Record]:
        """Yield whole records from here on. Raises InputError for a damaged one.

        Payloads of kinds that are not in `only` are neither read nor checked: a quick walk to the
        end. A record that its writer cuts off meanwhile is one that is not finished.
        """
        size = os.fstat(self._file.fileno()).st_size
        overhead = PREFIX.size + GUARD
        while size - self.position >= overhead:
            place = f"record {self._count} of '{self._path}'"
            self._file.seek(self.position)
            start = _read(self._file, PREFIX.size + GUARD)
            if len(start) < PREFIX.size + GUARD:
                return
            prefix, guard = bytes(start[: PREFIX.size]), bytes(start[PREFIX.size :])
            if guard != _guard(self.digest, prefix):
                raise self._damaged(place)
            kind, length = PREFIX.unpack(prefix)
            if length > LARGEST_RECORD or kind not in (HEADER, ROUND, END):
                raise self._damaged(place)
            if (kind == HEADER) != (self._count == 0) or self._ended:
                raise InputError(f"{place} is out of place; it cannot be audited")
            if size - self.position < overhead + length + DIGEST:
                return  # not finished, or not finished yet
            payload = memoryview(b"")
            if kind in only:
                payload = _read(self._file, length)
            else:
                self._file.seek(length, os.SEEK_CUR)
            stored = bytes(_read(self._file, DIGEST))
            if len(stored) < DIGEST:
                return
            if kind in only:
                fits = hashlib.sha256(self.digest + prefix)
                fits.update(payload)
                if stored != fits.digest():
                    raise self._damaged(place)
            self.digest = stored
            self.position += overhead + length + DIGEST
            self._count += 1
            self._ended = kind == END
            yield _Record(kind, payload, place)

    def _damaged(self, place: str) -> InputError:
        return InputError(
            f"{place} is damaged (byte {self.position}): its checksum does not fit; "
            "restore the file from a copy"
        )


def _opened(path: Path) -> io.FileIO:
    """Open a file to read, unbuffered: a buffer keeps bytes that the next writer has cut off."""
    try:
        return path.open("rb", buffering=0)
    except OSError as error:
        raise InputError(f"cannot read the transcript '{path}': {error.strerror}") from None


def _empty(path: Path) -> InputError:
    return InputError(f"the transcript '{path}' ends before its header; nothing was recorded")


def _beginning() -> bytes:
    return MAGIC + struct.pack("<I", VERSION)


def _start(file: io.FileIO) -> bytes:
    file.seek(0)
    return bytes(_read(file, len(MAGIC) + 4))


def _read(file: io.FileIO, length: int) -> memoryview:
    """Return that many bytes, fewer at the end of the file; one system call may bring only some."""
    buffer = memoryview(bytearray(length))
    filled = 0
    while filled < length:
        count = file.readinto(buffer[filled:])
        if not count:
            break
        filled += count
    return buffer[:filled].toreadonly()


def _write(file: io.FileIO, content: bytes) -> None:
    """Write all of it; one system call may take only some."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def _guard(digest: bytes, prefix: bytes) -> bytes:
    return hashlib.sha256(digest + prefix).digest()[:GUARD]


def _facts_to_json(facts: Facts) -> dict[str, Any]:
    return {
        "vantage": facts.vantage,
        "recorder": facts.recorder,
        "app": facts.app,
        "node": facts.node,
        "run": facts.run,
        "versions": dict(facts.versions),
    }


class _Shelf:
    """Collects the arrays of a record; their descriptions go into its JSON."""

    def __init__(self) -> None:
        self.arrays: list[npt.NDArray[Any]] = []
        self.table: list[dict[str, Any]] = []

    def put(self, arrays: Arrays) -> dict[str, int]:
        """Return the places of these arrays in the record, by name. Raises InputError."""
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


def _packed_round(observed: ObservedRound) -> tuple[dict[str, Any], list[npt.NDArray[Any]]]:
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
        "canary": None
        if observed.canary is None
        else {
            "coin": observed.canary.coin,
            "seed": observed.canary.seed,
            "norm": observed.canary.norm,
            "idle_norm": observed.canary.idle_norm,
        },
    }
    text["arrays"] = shelf.table
    return text, shelf.arrays


def _unpacked(payload: memoryview) -> tuple[dict[str, Any], list[npt.NDArray[Any]]]:
    if len(payload) < 8:
        raise ValueError("it is too short")
    (length,) = struct.unpack("<Q", payload[:8])
    if length > min(LARGEST_TEXT, len(payload) - 8):
        raise ValueError("its text is longer than the record")
    text = reading.json_value(bytes(payload[8 : 8 + length]))
    if not isinstance(text, dict):
        raise ValueError("its text is no JSON object")
    table, offset, arrays = text.get("arrays", []), 8 + length, []
    if len(table) > MOST_ARRAYS:
        raise ValueError(f"it has {len(table)} arrays")
    for entry in table:
        dtype, shape = _dtype(entry["dtype"]), [_whole(size) for size in entry["shape"]]
        if len(shape) > MOST_DIMENSIONS or any(size < 0 for size in shape):
            raise ValueError(f"an array has the shape {shape}")
        count = math.prod(shape)
        if count * dtype.itemsize > len(payload) - offset:
            raise ValueError("its arrays are larger than the record")
        array = np.frombuffer(payload, dtype, count, offset).reshape(shape)
        offset += array.nbytes
        arrays.append(array)
    if offset != len(payload):
        raise ValueError("there are bytes behind its arrays")
    return text, arrays


def _unpacked_round(text: Mapping[str, Any], arrays: list[npt.NDArray[Any]]) -> ObservedRound:
    def taken(places: Mapping[str, Any]) -> Arrays:
        found = {name: _whole(place) for name, place in places.items()}
        if any(place < 0 for place in found.values()):
            raise ValueError("an array has a negative place")
        return {name: arrays[place] for name, place in found.items()}

    canary, participants = text["canary"], text["participants"]
    replies = {
        _whole(entry["node"]): Reply(
            taken(entry["arrays"]),
            None if entry["num_examples"] is None else _real(entry["num_examples"]),
            {name: _from_json(value) for name, value in entry["metrics"].items()},
        )
        for entry in text["replies"]
    }
    if len(replies) != len(text["replies"]):
        raise ValueError("a node replied twice")
    return ObservedRound(
        round=_whole(text["round"]),
        model=taken(text["model"]),
        replies=replies,
        own=taken(text["own"]),
        unprotected=None if text["unprotected"] is None else taken(text["unprotected"]),
        aggregate=None if text["aggregate"] is None else taken(text["aggregate"]),
        participants=None if participants is None else tuple(_whole(node) for node in participants),
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
    # By name alone: structured and object dtypes never reach NumPy.
    if not isinstance(name, str) or name[1:] not in DTYPES or name[0] not in "<|":
        raise ValueError(f"an array has the dtype {name!r}, which is not a number's")
    return np.dtype(name)


DTYPES = {"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"}


def _to_json(value: Any) -> Any:
    """Return a metric as strict JSON, which has neither NaN nor infinity: {"float": "nan"}."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(f"{value!r} is no number, text or list of numbers")


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


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{value!r} stands where a whole number belongs")
    return value


def _seed(value: Any) -> int:
    if not 0 <= _whole(value) < 2**128:
        raise ValueError(f"{value} is no seed")
    return _whole(value)


def _real(value: Any) -> float:
    value = _scalar(value)
    if isinstance(value, str):
        raise ValueError(f"{value!r} stands where a number belongs")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} stands where text belongs")
    return value
