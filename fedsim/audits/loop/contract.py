"""The contract of a training function.

    def train(features, labels, seed): ...

The function trains on `features` [n, ...] (float32) and `labels` [n], both PyTorch tensors. It
returns what it releases, in one of these forms:

- a `torch.nn.Module`, a state dict or a vector [P]: the model;
- a list of modules or state dicts: the model after each step;
- an array [k, P]: every released step, or the model after each step;
- None: only the steps of Opacus's optimizer, which the audit observes.

Where Opacus is observed and a model is returned, the steps count as released, as its accountant
assumes. A function whose third parameter is called `seeds` trains one model for each of T seeds at
once, and returns [T, P] or [T, k, P].

Besides floating-point numbers a model may carry integer tensors, buffers outside its state dict,
and attributes of modules. `carried` returns their names with a checksum of each. Functions and
classes are compared by name only.
"""

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.audits.sandbox.channel import AppFailedError

Floats = npt.NDArray[np.float64]
OPACUS = ("grad_sample", "summed_grad", "_forward_counter", "_norm_sample", "_current_grad_sample")
"""Attributes that Opacus adds to every parameter, outside any state dict."""

CODE = (type, FunctionType, MethodType, BuiltinFunctionType)
UNREAD = ""
"""Checksum of an object that cannot be read."""

DEEPEST = 16
"""Deepest nesting of containers that is read."""


@dataclass(frozen=True)
class Function:
    """A training function; `many`: it trains a model for each of several seeds at once."""

    call: Callable[..., Any]
    many: bool


def loaded(name: str) -> Function:
    function = imported(name)
    if not callable(function):
        raise InputError(f"'{name}' is not a function; name one that takes features, labels, seed")
    parameters = list(inspect.signature(function).parameters)
    if len(parameters) < 3:
        raise InputError(f"'{name}' takes {', '.join(parameters)}; give it features, labels, seed")
    return Function(function, parameters[2] == "seeds")


def imported(name: str) -> Any:
    place, _, attribute = name.rpartition(":")
    if not place or not attribute.isidentifier():
        raise InputError(
            f"'{name}' is not a name; write MODULE:NAME, such as mine:train, or "
            "path/to/mine.py:train"
        )
    module_name = _on_path(place)
    try:
        module = importlib.import_module(module_name)
        return getattr(module, attribute)
    except Exception as error:
        raise InputError(
            f"'{name}' cannot be imported: {type(error).__name__}: {error}; name its file, or a "
            "module in this directory or on PYTHONPATH"
        ) from error


def _on_path(place: str) -> str:
    """Return the module's name, and put its folder, or this directory, on the path."""
    if place.endswith(".py"):
        path = Path(place).resolve()
        if not path.is_file():
            raise InputError(f"there is no file '{place}'; name the file that has the function")
        sys.path.insert(0, str(path.parent))
        return path.stem
    sys.path.insert(0, str(Path.cwd()))
    return place


def array(value: Any) -> Floats:
    """Return the result of a function as float64: a model [P], or an array's own shape."""
    if several(value):
        return _stacked([array(each) for each in value])
    state = getattr(value, "state_dict", None)
    if callable(state) and not hasattr(value, "shape"):
        value = state()
    try:
        if isinstance(value, Mapping):
            if not all(hasattr(each, "shape") for each in value.values()):
                raise TypeError("a mapping of numbers is not a state dict")
            parts = [_numbers(each).ravel() for each in value.values()]
            numbers = np.concatenate(parts) if parts else np.empty(0)
        else:
            numbers = _numbers(value)
    except (TypeError, ValueError) as error:
        raise AppFailedError(
            f"the loop returned no arrays of numbers ({error}); return only the model, or only "
            "every released step [k, P]"
        ) from None
    if not numbers.size:
        raise AppFailedError("the loop released nothing; return the model, or every released step")
    if not np.isfinite(numbers).all():
        raise AppFailedError("the loop released numbers that are not finite; there is no verdict")
    return numbers


def several(value: Any) -> bool:
    """Return whether a function returned a list of models, each a module or a state dict."""
    return (
        isinstance(value, list | tuple)
        and len(value) > 0
        and all(
            isinstance(each, Mapping)
            or (hasattr(each, "state_dict") and not hasattr(each, "shape"))
            for each in value
        )
    )


def _stacked(models: list[Floats]) -> Floats:
    if len({each.size for each in models}) > 1:
        raise AppFailedError("the loop returned models of several sizes; audit one at a time")
    rows = np.array(models)
    if len(rows) > 1 and (rows == rows[0]).all():
        raise AppFailedError(
            f"the loop returned one model {len(rows)} times; append a copy of it after each step: "
            "copy.deepcopy(model.state_dict())"
        )
    return rows


def tensors(value: Any) -> dict[str, Floats]:
    state = getattr(value, "state_dict", None)
    if callable(state) and not hasattr(value, "shape"):
        value = state()
    named = value if isinstance(value, Mapping) else {"of what the loop returned": value}
    return {str(name): _numbers(each) for name, each in named.items()}


def _numbers(value: Any) -> Floats:
    detach = getattr(value, "detach", None)
    if callable(detach):
        value = detach().cpu().double().numpy()
    return np.asarray(value, np.float64)


def carried(value: Any) -> tuple[tuple[str, str], ...]:
    """Return names and checksums, in order; `UNREAD` for objects that cannot be read."""
    if several(value):
        return tuple(
            (f"{name} of model {place + 1}", checksum)
            for place, each in enumerate(value)
            for name, checksum in carried(each)
        )
    checksums: dict[str, str] = {}
    state = getattr(value, "state_dict", None)
    named = state() if callable(state) and not hasattr(value, "shape") else value
    if isinstance(named, Mapping):
        for name, each in named.items():
            if hasattr(each, "shape") and not _floating(each):
                checksums[f"integer tensor {name}"] = _checksum(each)
    if callable(getattr(value, "named_modules", None)):
        checksums |= dict(_attributes(value))
    return tuple(sorted(checksums.items()))


def _attributes(model: Any) -> Iterator[tuple[str, str]]:
    from torch.nn import Module  # noqa: PLC0415  (a loop that returns a module has loaded it)

    usual, state = vars(Module()).keys(), model.state_dict(keep_vars=True)
    for name, buffer in model.named_buffers():
        if name not in state:
            yield f"buffer {name}", _checksum(buffer)
    for path, module in model.named_modules():
        for name, each in vars(module).items():
            if name not in usual:
                yield f"attribute {path}.{name}".replace(" .", " "), _checksum(each)
    for path, parameter in model.named_parameters():
        for name, each in vars(parameter).items():
            if name not in OPACUS:
                yield f"attribute {path}.{name}", _checksum(each)


def _floating(tensor: Any) -> bool:
    method = getattr(tensor, "is_floating_point", None)
    return bool(method()) if callable(method) else np.asarray(tensor).dtype.kind == "f"


def _checksum(value: Any) -> str:
    parts = list(_parts(value, DEEPEST))
    if None in parts:
        return UNREAD
    return hashlib.sha256(b"\0".join(part for part in parts if part is not None)).hexdigest()[:16]


def _parts(value: Any, depth: int) -> Iterator[bytes | None]:
    if callable(getattr(value, "detach", None)):
        value = value.detach().cpu()
        if value.dtype.is_floating_point:  # NumPy has no bfloat16
            value = value.double()
        value = value.numpy()
    if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
        yield f"{value.dtype}{np.shape(value)}".encode()
        yield value.tobytes()
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
        yield f"{type(value).__name__} {value!r}".encode()
    elif isinstance(value, CODE) or type(value).__name__ == "RemovableHandle":
        yield getattr(value, "__qualname__", "hook").encode()
    elif type(value).__module__ == "torch":  # dtypes, devices, layouts
        yield repr(value).encode() if type(value).__name__ != "Generator" else None
    elif isinstance(value, Mapping | list | tuple | set | frozenset) and depth:
        yield f"{type(value).__name__} {len(value)}".encode()
        if isinstance(value, set | frozenset):
            value = sorted(value, key=repr)
        for each in value.items() if isinstance(value, Mapping) else value:
            yield from _parts(each, depth - 1)
    else:
        yield None
