"""What a returned model carries beside its floating-point numbers: names, and a checksum of each.

Integer tensors, buffers that no state dict shows, and attributes of modules. Functions and classes
are named by what they are called, and not looked into.
"""

import hashlib
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

OPACUS = ("grad_sample", "summed_grad", "_forward_counter", "_norm_sample", "_current_grad_sample")
"""What Opacus leaves at every parameter; no state dict has it."""

CODE = (type, FunctionType, MethodType, BuiltinFunctionType)

UNREAD = ""
"""The checksum of what cannot be read."""

DEEPEST = 16
"""Containers in each other that are looked into."""


def carried(value: Any) -> tuple[tuple[str, str], ...]:
    """Return names and checksums, in order; `UNREAD` for objects that cannot be read."""
    found = dict(_integers(value))
    if callable(getattr(value, "named_modules", None)):
        found |= dict(_attributes(value))
    return tuple(sorted(found.items()))


def _integers(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the integer tensors of a state dict."""
    state = getattr(value, "state_dict", None)
    if callable(state) and not hasattr(value, "shape"):
        value = state()
    if isinstance(value, Mapping):
        for name, each in value.items():
            if hasattr(each, "shape") and not _floating(each):
                yield f"integer tensor {name}", _checksum(each)


def _attributes(model: Any) -> Iterator[tuple[str, str]]:
    """Yield the buffers that no state dict shows, and the attributes of modules and parameters."""
    from torch.nn import Module  # noqa: PLC0415  (a loop that returns a module has loaded it)

    usual, shown = vars(Module()).keys(), model.state_dict(keep_vars=True)
    for name, buffer in model.named_buffers():
        if name not in shown:
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
    asked = getattr(tensor, "is_floating_point", None)
    return bool(asked()) if callable(asked) else np.asarray(tensor).dtype.kind == "f"


def _checksum(value: Any) -> str:
    parts = list(_parts(value, DEEPEST))
    if None in parts:
        return UNREAD
    return hashlib.sha256(b"\0".join(part for part in parts if part is not None)).hexdigest()[:16]


def _parts(value: Any, depth: int) -> Iterator[bytes | None]:
    """Yield what a value is made of, None for what cannot be read."""
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
