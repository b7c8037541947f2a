"""A transcript as a folder: its facts, a file for each round, and why it ended.

Every file is written whole or not at all. There is no key, so nothing protects against a party that
writes another folder.
"""

import contextlib
import json
import secrets
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import private_files, reading
from fedsim.federation.transcripts.records import Arrays, NodeReply, ObservedRound, TranscriptFacts

SUFFIX = ".fedt"
FACTS, END, LOCK = "facts.json", "end.json", "lock"
VERSION = 5

MOST_ARRAYS = 65_000
"""In a round: more would need another kind of archive."""

NUMERIC = "biuf"
"""Kinds of NumPy's types that a transcript keeps: booleans, integers and floating-point numbers."""

LONGEST_EMPTY = 128
"""Bytes of the header of an array's file: a reader refuses a longer array in a shorter file."""

TEXT = "text"
"""Array of a round's file with its JSON, as bytes."""

FACTS_KEYS = {
    "version": int,
    "recording": str,
    "vantage": str,
    "recorder": str,
    "app": str,
    "node": (int, type(None)),
    "run": str,
    "versions": dict,
}
END_KEYS = {"rounds": int, "incomplete": str, "resumable": bool}
ROUND_KEYS = {
    "recording": str,
    "number": int,
    "round": int,
    "replies": list,
    "released": bool,
    "participants": (list, type(None)),
    "mechanism": dict,
    "arrays": list,
}
"""The keys of each JSON text, with the types of their values."""

SCALARS = (bool, int, float, str)
VALUES = (*SCALARS, list, type(None))


def holds_several(path: Path) -> bool:
    """Return whether a path is that of a folder of transcripts, rather than of one."""
    return path.is_dir() and path.suffix != SUFFIX and not (path / FACTS).exists()


def is_empty(path: Path) -> bool:
    """Return whether nothing was recorded in a folder, though a writer may have locked it."""
    return path.is_dir() and all(
        each.name == LOCK or each.name.endswith(private_files.PARTIAL) for each in path.iterdir()
    )


def of_round(path: Path, number: int) -> Path:
    """Return the path of a round's file; the first has the number 1."""
    return path / f"{number:06}.npz"


def count(path: Path) -> int:
    """Return the number of rounds. Raises InputError if one before another is missing."""
    numbers = {int(each.stem) for each in path.glob("*.npz") if each.stem.isdecimal()}
    for number in range(1, len(numbers) + 1):
        if number not in numbers:
            name = of_round(path, number).name
            raise InputError(
                f"the transcript '{path}' has no {name}; restore the folder from a copy"
            )
    return len(numbers)


def write_facts(path: Path, facts: TranscriptFacts) -> str:
    """Write the facts of a new transcript; return its recording, which each round names."""
    recording = secrets.token_hex(8)
    text = {"version": VERSION, "recording": recording, **vars(facts)}
    _write(path / FACTS, {**text, "versions": dict(facts.versions)})
    return recording


def read_facts(path: Path) -> tuple[TranscriptFacts, str]:
    """Return facts and recording. Raises InputError if they are missing or malformed."""
    try:
        recorded, exists = (path / FACTS).exists(), path.exists()
        empty = not recorded and is_empty(path)
    except OSError as error:  # of another account
        raise InputError(f"cannot read the transcript '{path}': {error.strerror}") from None
    if not exists:
        raise InputError(f"cannot read the transcript '{path}': there is no such folder")
    if empty:
        raise InputError(f"nothing was recorded in the transcript '{path}'")
    if not recorded:
        raise InputError(
            f"'{path}' is not a fedsim transcript; give a folder that a recorder of fedsim wrote"
        )
    with _damage(path / FACTS):
        text = reading.json_object(path / FACTS)
        if (version := text.get("version")) != VERSION:
            raise InputError(
                f"the transcript '{path}' has version {version}; this fedsim reads version "
                f"{VERSION}: use the fedsim that wrote it, or a newer one"
            )
        _check(text, FACTS_KEYS)
        _check_entries(text["versions"], str)
        del text["version"]
        recording = text.pop("recording")
        return TranscriptFacts(**text), recording


def write_round(path: Path, number: int, recording: str, observed: ObservedRound) -> None:
    """Write a round. Raises InputError for arrays or values that it does not keep; OSError."""
    groups = {"model": observed.model, "aggregate": observed.aggregate or {}}
    groups |= {f"reply {node}": reply.arrays for node, reply in observed.replies.items()}
    replies = [
        [int(node), reply.num_examples, dict(reply.metrics)]
        for node, reply in observed.replies.items()
    ]
    text = {
        "recording": recording,
        "number": number,
        "round": int(observed.round),
        "replies": replies,
        "released": observed.aggregate is not None,
        "participants": None if observed.participants is None else list(observed.participants),
        "mechanism": dict(observed.mechanism),
    }
    listed = [
        (group, name, np.asarray(array))
        for group, each in groups.items()
        for name, array in each.items()
    ]
    if len(listed) > MOST_ARRAYS:
        raise InputError(f"a round of {len(listed)} arrays is too large for a transcript")
    for _, name, array in listed:
        _check_array(name, array)
    arrays = {f"a{place}": array for place, (_, _, array) in enumerate(listed)}
    text["arrays"] = [[group, name] for group, name, _ in listed]
    try:
        encoded = json.dumps(_plain(text)).encode()  # in ASCII, which keeps lone surrogates
        _check_length(len(encoded))
        _decoded(json.loads(encoded), arrays)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"a round has a value that a transcript does not keep: {reading.reason(error)}"
        ) from None
    content = {TEXT: np.frombuffer(encoded, np.uint8), **arrays}
    with private_files.replacing(of_round(path, number)) as file:
        np.savez(file, **content)  # type: ignore[arg-type]  # allow_pickle's bool


def read_round(path: Path, number: int, recording: str) -> ObservedRound:
    """Return a round. Raises InputError if its file is damaged, malformed, or another's."""
    file = of_round(path, number)
    with _damage(file):
        arrays = reading.arrays(file)
        content = arrays.pop(TEXT)
        _check_length(content.nbytes)
        if wrong := [name for name, array in arrays.items() if array.dtype.kind not in NUMERIC]:
            raise ValueError(f"array '{wrong[0]}' is not numeric")
        text = json.loads(content.tobytes())
        observed = _decoded(text, arrays)
        if (text["recording"], text["number"]) != (recording, number):
            raise ValueError("it is not this round of this recording")
        return observed


def write_end(path: Path, rounds: int, incomplete: str, resumable: bool) -> None:
    _write(path / END, {"rounds": rounds, "incomplete": incomplete, "resumable": resumable})


def read_end(path: Path) -> dict[str, Any] | None:
    """Return the text of END_KEYS; None before the end. Raises InputError if it is malformed."""
    with _damage(path / END):
        try:
            text = reading.json_object(path / END)
        except FileNotFoundError:
            return None
        _check(text, END_KEYS)
        return text


def check_end(path: Path, end: Mapping[str, Any], rounds: int) -> None:
    """Raise InputError if an ended transcript has other rounds than when it ended."""
    with _damage(path / END):
        if end["rounds"] != rounds:
            raise ValueError(f"it names {end['rounds']} rounds, but there are {rounds}")


def torn(path: Path) -> dict[Path, int]:
    """Return the files that killed writers had not written whole, with their sizes."""
    found = dict[Path, int]()
    for each in path.glob(f".*{private_files.PARTIAL}"):
        with contextlib.suppress(OSError):  # a living writer has renamed it
            status = each.lstat()
            found |= {each: status.st_size} if stat.S_ISREG(status.st_mode) else {}
    return found


def _decoded(text: Any, arrays: Arrays) -> ObservedRound:
    """Return the round of a text and its arrays. Raises an error of `reading.DAMAGE`."""
    _check(text, ROUND_KEYS)
    _check_entries(text["mechanism"], SCALARS)
    _check_entries(dict(enumerate(text["participants"] or ())), int)
    groups = _grouped(text["arrays"], arrays)
    replies = {}
    for node, examples, metrics in text["replies"]:
        if type(node) is not int or not isinstance(examples, int | float | None):
            raise ValueError(f"a reply is of node {node!r:.80} with {examples!r:.80} examples")
        _check_entries(metrics, VALUES)
        for each in metrics.values():
            _check_entries(dict(enumerate(each if isinstance(each, list) else ())), (int, float))
        replies[node] = NodeReply(groups.pop(f"reply {node}", {}), examples, metrics)
    model, aggregate = (groups.pop(name, {}) for name in ("model", "aggregate"))
    if groups or len(replies) != len(text["replies"]):
        raise ValueError("a node replied twice, or not at all")
    return ObservedRound(
        round=text["round"],
        model=model,
        replies=replies,
        aggregate=aggregate if text["released"] else None,
        participants=None if text["participants"] is None else tuple(text["participants"]),
        mechanism=text["mechanism"],
    )


def _grouped(listed: list[Any], arrays: Arrays) -> dict[str, dict[str, Any]]:
    """Return arrays by group and name, of which a list has those of `a0`, `a1` and so on.

    The names are any text of other parties, which is no part of a file's name in the archive.
    """
    if len(listed) != len(arrays):
        raise ValueError(f"it names {len(listed)} arrays and has {len(arrays)}")
    groups: dict[str, dict[str, Any]] = {}
    for place, pair in enumerate(listed):
        if type(pair) is not list or [type(each) for each in pair] != [str, str]:
            raise ValueError(f"array {place} is named {pair!r:.80}")
        group, name = pair
        if name in groups.setdefault(group, {}):
            raise ValueError(f"two arrays are named {pair!r:.80}")
        groups[group][name] = arrays[f"a{place}"]
    return groups


def _check_length(size: int) -> None:
    if size > reading.MOST_JSON:
        raise ValueError(f"its text has more than {reading.MOST_JSON} bytes")


def _check_array(name: str, array: npt.NDArray[Any]) -> None:
    if array.dtype.kind not in NUMERIC:
        raise InputError(
            f"array {name!r:.80} holds {array.dtype}; a transcript keeps booleans, integers and "
            "floating-point numbers"
        )
    if not array.size and max(array.shape, default=0) > LONGEST_EMPTY:
        raise InputError(
            f"array {name!r:.80} has the shape {array.shape} without a number; a transcript keeps "
            f"empty arrays of up to {LONGEST_EMPTY} rows or columns"
        )


def _check(text: Any, keys: Mapping[str, Any]) -> None:
    """Raise ValueError unless a JSON text is an object with exactly these keys and types."""
    if not isinstance(text, dict) or text.keys() != keys.keys():
        raise ValueError(f"it does not have exactly the keys {', '.join(keys)}")
    for name, kinds in keys.items():
        _check_entries({name: text[name]}, kinds)


def _check_entries(entries: Any, kinds: Any) -> None:
    """Raise ValueError for the first entry that has none of some types; a truth is no number."""
    allowed = kinds if isinstance(kinds, tuple) else (kinds,)
    if not isinstance(entries, dict):
        raise ValueError(f"{entries!r:.80} is no object")
    for name, value in entries.items():
        if type(value) not in allowed:
            raise ValueError(f"'{str(name)[:80]}' is {value!r:.80}")


def _plain(value: Any) -> Any:
    """Return numbers of NumPy as Python's, also within lists and objects."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value


def _write(file: Path, text: Mapping[str, Any]) -> None:
    private_files.write_private(file, json.dumps(text, allow_nan=False).encode())


@contextlib.contextmanager
def _damage(file: Path) -> Iterator[None]:
    """Turn an error of a damaged file within the block into an InputError that names it."""

    def refusal(why: str) -> InputError:
        return InputError(
            f"'{file.name}' of the transcript '{file.parent}' is damaged: {why}; restore it from a "
            "copy"
        )

    with reading.damage(refusal):
        yield
