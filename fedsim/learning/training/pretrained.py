"""Values that a network starts from: a local safetensors file, of which all parties have a copy.

Or a Hugging Face directory with config.json, tokenizer.json and model.safetensors. Either is told
from others by its SHA-256, which is public; where it lies is each machine's own business. A
classifier of another size is left as it was drawn.
"""

import contextlib
import hashlib
import logging
from collections.abc import Iterator, Sequence
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
"""BatchNorm's count of batches, which nothing here needs."""

STATISTICS = "running_mean"
"""What a BatchNorm that has seen data has, and its replacements have not."""

FILES = (tokens.CONFIG, tokens.TOKENIZER, "model.safetensors")
"""What a Hugging Face directory is told by."""

NAMED = 3
"""How many names of a kind an error message gives."""


def digest(path: str) -> str:
    """Return the SHA-256 of a file, in hexadecimal; of a directory, of its files' digests.

    Raises InputError if it cannot be read.
    """
    try:
        if not Path(path).is_dir():
            return _digest_of_file(path)
        found = [_digest_of_file(str(Path(path) / name)) for name in FILES]
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read model.weights '{getattr(error, 'filename', path)}': "
            f"{reading.reason(error)}; name a safetensors file, or a directory with "
            f"{', '.join(FILES)}"
        ) from None
    return hashlib.sha256("".join(found).encode()).hexdigest()


def same(path: str, sha256: str) -> bool:
    """Return whether a file can be read and is the one of a digest.

    path: of the file; "" is none.
    """
    try:
        return bool(path) and digest(path) == sha256
    except InputError:
        return False


def read(path: str, sha256: str) -> dict[str, Tensor]:
    """Return the values of a file by name; none where no file is asked for.

    path: of the file, "" for none.
    sha256: that it must have; "" for any.
    Raises InputError if it is missing, another one, damaged, or has numbers that are not finite.
    """
    if not path and not sha256:
        return {}
    return _read(path, check(path, sha256))


def check(path: str, sha256: str) -> str:
    """Return the digest of a file or a directory, as of `digest`, if it is the one that it must be.

    path: of it, "" for none.
    sha256: that it must have; "" for any.
    Raises InputError if it is missing, or another one.
    """
    if not path:
        raise InputError(
            "this machine was not told where its copy of model.weights is "
            f"(SHA-256 {sha256}); a client's node.toml says so with weights-path"
        )
    found = digest(path)
    if sha256 not in ("", found):
        raise InputError(
            f"'{path}' has SHA-256 {found} and not model.weights-sha256, {sha256}: take the file "
            "that all parties agreed upon"
        )
    return found


def put(model: nn.Module, values: dict[str, Tensor]) -> None:
    """Give a network a file's values, in place, but for a classifier of another size.

    model: whose last layer is taken for the classifier, which is left as it is, and logged, where
    the file has none or one of another size.
    values: by the names of the network's state_dict.
    Raises InputError if other names or shapes differ.
    """
    own = model.state_dict()
    values = {name: value for name, value in values.items() if not name.endswith(COUNTER)}
    head = _head(model)
    differing = [name for name in own if name in values and own[name].shape != values[name].shape]
    missing = [name for name in own if name not in values and not name.endswith(COUNTER)]
    fresh = head if {*differing, *missing} & set(head) else []
    complaints = (
        ("it has no", [name for name in missing if name not in fresh]),
        ("the network has no", [name for name in values if name not in own]),
        ("there are other shapes of", [name for name in differing if name not in fresh]),
    )
    wrong = [f"{what} {_some(names)}" for what, names in complaints if names]
    if not wrong and not set(values) - set(fresh):
        wrong = [f"nothing but {_some(fresh)} could be taken from it, of another size"]
    if wrong:
        hint = "save the values of just this network"
        if any(name.endswith(STATISTICS) and name not in own for name in values):
            hint = 'what BatchNorm learned is kept by model.batch-norm = "channel-affine"'
        raise InputError(f"model.weights does not fit the network: {', '.join(wrong)}; {hint}")
    if fresh:
        _tell(f"model.weights has no {_some(fresh)} of this size: they start anew")
    with torch.no_grad():
        for name in set(values) - set(fresh):
            own[name].copy_(values[name])


def _head(model: nn.Module) -> list[str]:
    """Return the names of the parameters of the last layer that has any."""
    names = [name for name, _ in model.named_parameters()]
    layer = names[-1].rpartition(".")[0] if names else ""
    return [name for name in names if name.rpartition(".")[0] == layer]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(f"'{name}'" for name in names[:NAMED]) + more


def _digest_of_file(path: str) -> str:
    state = Path(path).stat()
    return _digest(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=8)
def _digest(path: str, changed: int, size: int) -> str:
    with reading.opened(Path(path)) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@lru_cache(maxsize=1)
def _read(path: str, sha256: str) -> dict[str, Tensor]:
    """Return what a file holds, read once for all trials."""
    return values(path)


def values(path: str) -> dict[str, Tensor]:
    """Return what a safetensors file holds, by name.

    Raises InputError if it cannot be read, is damaged, or has numbers that are not finite.
    """
    with _file_of_values(path):
        found = load_file(path)
    for name, value in found.items():
        if not bool(torch.isfinite(value.float()).all()):
            raise InputError(f"'{path}' has numbers in '{name}' that are not finite")
    return found


def sizes(path: str) -> dict[str, tuple[int, ...]]:
    """Return the shape of each value of a safetensors file, of which the header alone is read.

    Raises InputError if it cannot be read, or is damaged.
    """
    with _file_of_values(path), safe_open(path, framework="pt") as file:
        names = file.keys()
        return {name: tuple(file.get_slice(name).get_shape()) for name in names}


@contextlib.contextmanager
def _file_of_values(path: str) -> Iterator[None]:
    """Turn what a safetensors file raises inside of the block into an InputError."""
    try:
        reading.opened(Path(path)).close()
        yield
    except (SafetensorError, *reading.DAMAGE) as error:
        reason = reading.reason(error)
        raise InputError(f"'{path}' is no safetensors file, or damaged: {reason}") from None


@lru_cache
def _tell(what: str) -> None:
    """Log something once, however many models are built."""
    LOG.warning(what)
