"""First values of a network: a local safetensors file or Hugging Face directory."""

import contextlib
import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.learning.data import tokens

LOG = logging.getLogger(__name__)

COUNTER = "num_batches_tracked"
"""BatchNorm's count of batches, which is not needed."""

STATISTICS = "running_mean"
"""An entry of a BatchNorm that has seen data, which its replacements do not have."""

FILES = (tokens.CONFIG, tokens.TOKENIZER, "model.safetensors")
"""The files that identify a Hugging Face directory."""

NAMED = 3
"""Number of names of a kind that an error message shows."""


def digest(path: str) -> str:
    """Return the SHA-256 of a file, in hexadecimal; for a directory, of its files' digests."""
    place = Path(path)
    try:
        if not place.is_dir():
            return _digest_of_file(place)
        digests = [_digest_of_file(place / name) for name in FILES]
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read model.weights '{getattr(error, 'filename', path)}': "
            f"{reading.reason(error)}; name a safetensors file, or a directory with "
            f"{', '.join(FILES)}"
        ) from None
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def same(path: str, sha256: str) -> bool:
    """Return whether a file can be read and has this digest; path "" is no file."""
    try:
        return bool(path) and digest(path) == sha256
    except InputError:
        return False


def read_values(path: str, sha256: str) -> dict[str, Tensor]:
    """Return the values of a file by name; empty if no file is wanted.

    path: of the file, "" for none.
    sha256: required digest; "" for any.
    Raises InputError if the file is missing, another one, damaged, or has numbers that are not
    finite.
    """
    return _read(path, checked_digest(path, sha256)) if path or sha256 else {}


def checked_digest(path: str, sha256: str) -> str:
    """Return the digest of a file or directory.

    Raises InputError if it is missing or another one.
    """
    if not path:
        raise InputError(
            "this machine does not know the path of its copy of model.weights "
            f"(SHA-256 {sha256}); set weights-path in a client's node.toml"
        )
    actual = digest(path)
    if sha256 not in ("", actual):
        raise InputError(
            f"'{path}' has SHA-256 {actual}, but model.weights-sha256 is {sha256}; use the file "
            "that all parties agreed on"
        )
    return actual


def has_statistics(values: Iterable[str]) -> bool:
    """Return whether values by name are of a BatchNorm that has seen data."""
    return any(name.endswith(STATISTICS) for name in values)


def put(model: nn.Module, values: dict[str, Tensor]) -> None:
    """Copy a file's values into a network, except a classifier of another size.

    The classifier is the last layer. If the file lacks it, or has another size, it stays unchanged,
    and a warning is logged.

    values: by the names of the network's state_dict.
    Raises InputError if other names or shapes differ.
    """
    own = {n: value for n, value in model.state_dict().items() if not n.endswith(COUNTER)}
    values = {n: value for n, value in values.items() if not n.endswith(COUNTER)}
    # The classifier: the parameters of the last layer that has any.
    names = [name for name, _ in model.named_parameters()]
    layer = names[-1].rpartition(".")[0] if names else ""
    head = {name for name in names if name.rpartition(".")[0] == layer}
    missing = [name for name in own if name not in values]
    differing = [name for name in own if name in values and own[name].shape != values[name].shape]
    fresh = [n for n in names if n in head] if head & {*differing, *missing} else []
    complaints = (
        ("it has no", [name for name in missing if name not in fresh]),
        ("the network has no", [name for name in values if name not in own]),
        ("the shapes differ for", [name for name in differing if name not in fresh]),
    )
    wrong = [f"{problem} {_some(names)}" for problem, names in complaints if names]
    if not wrong and not set(values) - set(fresh):
        wrong = [f"it has values for {_some(fresh)} only, and of another size"]
    if wrong:
        hint = "save the values of exactly this network"
        if has_statistics(set(values) - set(own)):
            hint = 'set model.batch-norm = "channel-affine" to keep what BatchNorm learned'
        raise InputError(f"model.weights does not fit the network: {', '.join(wrong)}; {hint}")
    if fresh:
        _warn(f"model.weights has no {_some(fresh)} of this size; the random values there stay")
    with torch.no_grad():
        for name in set(values) - set(fresh):
            own[name].copy_(values[name])


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(f"'{name}'" for name in names[:NAMED]) + more


def _digest_of_file(path: Path) -> str:
    state = path.stat()
    return _digest(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=8)
def _digest(path: Path, changed: int, size: int) -> str:
    with reading.opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@lru_cache(maxsize=1)
def _read(path: str, sha256: str) -> dict[str, Tensor]:
    return values(path)


def values(path: str) -> dict[str, Tensor]:
    """Return the values in a safetensors file, by name. Raises InputError if it is damaged."""
    with _file_of_values(path):
        by_name = load_file(path)
    for name, value in by_name.items():
        if not bool(torch.isfinite(value.float()).all()):
            raise InputError(f"'{path}' has numbers in '{name}' that are not finite")
    return by_name


def sizes(path: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes in a safetensors file by its header. Raises InputError for damage."""
    with _file_of_values(path), safe_open(path, framework="pt") as file:
        names = file.keys()
        return {name: tuple(file.get_slice(name).get_shape()) for name in names}


@contextlib.contextmanager
def _file_of_values(path: str) -> Iterator[None]:
    try:
        reading.opened(Path(path)).close()
        yield
    except (SafetensorError, *reading.DAMAGE) as error:
        reason = reading.reason(error)
        raise InputError(
            f"'{path}' is not a safetensors file, or it is damaged: {reason}"
        ) from None


@lru_cache
def _warn(message: str) -> None:
    LOG.warning(message)
