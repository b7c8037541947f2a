"""The contract of a training function.

    def train(features, labels, seed): ...

The function trains on `features` [n, ...] (float32) and `labels` [n], both PyTorch tensors. It
returns what it releases, in one of these forms:

- a `torch.nn.Module`, a state dict or a vector [P]: the model;
- an array [k, P]: every released step;
- None: only the steps of Opacus's optimizer, which the audit observes.

Where Opacus is observed and a model is returned, the steps count as released, as its accountant
assumes.

A module counts as its state dict: save `model.state_dict()`, since a pickled module also has
attributes, which no audit reads. A state dict may also have integer tensors.
"""

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Floats
from adversaries.errors import InputError
from fedsim.audits.child_process.channel import AppFailedError

Tensor = npt.NDArray[Any]
Function = Callable[[Any, Any, int], Any]

RETURNED = "of what the loop returned"
UNREADABLE = (
    "the loop returned no array of numbers ({}); return the model alone, as a module or a state "
    "dict, or every released step as an array [k, P]"
)


def loaded(name: str) -> Function:
    function = imported(name)
    if not callable(function) or len(inspect.signature(function).parameters) < 3:
        raise InputError(f"'{name}' is no function of three parameters: features, labels, seed")
    return function


def imported(name: str) -> Any:
    """Return an attribute of a module, whose folder, or this directory, gets on the path."""
    place, _, attribute = name.rpartition(":")
    if not place or not attribute.isidentifier():
        raise InputError(
            f"'{name}' is not of the form MODULE:NAME; write for example mine:train, or "
            "path/to/mine.py:train"
        )
    folder, module = Path.cwd(), place
    if place.endswith(".py"):
        path = Path(place).resolve()
        if not path.is_file():
            raise InputError(f"there is no file '{place}'; name the file that has the function")
        folder, module = path.parent, path.stem
    sys.path.insert(0, str(folder))
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise InputError(
            f"'{name}' cannot be imported: {type(error).__name__}: {error}; name its file, or a "
            "module in this directory or on PYTHONPATH"
        ) from error


def tensors(value: Any) -> dict[str, Tensor]:
    """Return the named tensors of what a function returned."""
    is_module = callable(getattr(value, "state_dict", None)) and not hasattr(value, "shape")
    state = value.state_dict() if is_module else value
    if not isinstance(state, Mapping):
        return {RETURNED: _numpy(state)}
    if not all(hasattr(each, "shape") for each in state.values()):
        raise AppFailedError(UNREADABLE.format("a mapping of numbers is no state dict"))
    return {str(name): _numpy(each) for name, each in state.items()}


def array(value: Any) -> Floats:
    """Return the result of a function as float64: a model [P], or an array's own shape."""
    try:
        named = {name: each.astype(np.float64) for name, each in tensors(value).items()}
    except (TypeError, ValueError) as error:
        raise AppFailedError(UNREADABLE.format(error)) from None
    if [*named] == [RETURNED]:
        numbers = named[RETURNED]
    else:
        numbers = np.concatenate([np.empty(0), *(each.ravel() for each in named.values())])
    if not numbers.size:
        raise AppFailedError("the loop released nothing; return the model, or every released step")
    if not np.isfinite(numbers).all():
        raise AppFailedError("the loop released numbers that are not finite; there is no verdict")
    return numbers


def carried(named: Mapping[str, Tensor]) -> tuple[tuple[str, str], ...]:
    """Return names and checksums of the integer tensors in a model's state, in order."""
    whole = {name: each for name, each in named.items() if each.dtype.kind != "f"}
    return tuple(sorted((f"integer tensor {name}", _checksum(whole[name])) for name in whole))


def _numpy(value: Any) -> Tensor:
    if callable(getattr(value, "detach", None)):
        value = value.detach().cpu()
        value = (value.double() if value.is_floating_point() else value).numpy()
    return np.asarray(value)


def _checksum(numbers: Tensor) -> str:
    described = f"{numbers.dtype}{numbers.shape}".encode()
    return hashlib.sha256(described + numbers.tobytes()).hexdigest()[:16]
