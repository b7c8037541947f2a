"""The values of a result's files by name, without what differs from run to run."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

APART = {
    *("created", "timing", "time", "seconds", "at", "started", "finished", "duration", "code"),
    *("runtime", "run_id", "engine", "host", "peak_memory_bytes", "recording"),
    "batch_seconds",
}
"""Keys, and names of arrays, of what differs from run to run: when, where and how fast."""

SKIPPED = {"events.jsonl"}

Values = dict[str, Any]


def of_directory(directory: Path, places: dict[str, str]) -> Values:
    """Return the values of every file that has any, by file and key.

    Args:
        directory: of a result.
        places: words that stand for paths: path to word.
    """
    found: Values = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.name not in SKIPPED:
            name = path.relative_to(directory).as_posix()
            found |= {f"{name}: {key}": value for key, value in _of_file(path, places)}
    return found


def of_text(text: str, places: dict[str, str]) -> Values:
    """Return the leaves of a JSON document, of which a path stands for its word."""
    for place, word in places.items():
        text = text.replace(place, word)
    return dict(_leaves(json.loads(text)))


def _of_file(path: Path, places: dict[str, str]) -> Iterator[tuple[str, Any]]:
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            for name in sorted({*arrays.files} - APART - {"run", "experiment"}):
                if name == "text":  # of a transcript's round: JSON, as bytes
                    yield from of_text(arrays[name].tobytes().decode(), places).items()
                else:
                    yield name, np.ascontiguousarray(arrays[name])
    elif path.suffix == ".json":
        yield from of_text(path.read_text(encoding="utf-8"), places).items()
    elif path.suffix == ".jsonl":
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for key, value in of_text(line, places).items():
                yield f"{number}.{key}", value
    elif path.suffix == ".toml":
        yield from of_text(json.dumps(tomllib.loads(path.read_text())), places).items()
    elif path.suffix == ".safetensors":
        from safetensors.numpy import load_file  # noqa: PLC0415

        yield from sorted(load_file(path).items())
    elif path.suffix == ".csv":
        yield "text", path.read_text(encoding="utf-8")


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every leaf of a document by its dotted key; an empty list or object is a leaf."""
    if isinstance(value, dict) and value:
        for name, each in value.items():
            if name not in APART:
                yield from _leaves(each, f"{key}.{name}" if key else name)
    elif isinstance(value, list) and value:
        for place, each in enumerate(value):
            yield from _leaves(each, f"{key}[{place}]")
    else:
        yield key, value
