"""Classes, functions and arrays of this Python process, under names that a configuration can hold.

A name has a digest, such as "given:Net_1f3a…": a random one of code, and of arrays that of their
values. The same object continues its run. Another object, and another process, are refused.
"""

import hashlib
import inspect
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.attacks.membership_attacks import Attack
from adversaries.errors import InputError
from adversaries.registry import give
from fedsim.configuration.federation import DataConfig
from fedsim.learning.data.arrays import dataset_of
from fedsim.learning.data.dataset import Dataset

_tokens: dict[int, tuple[Any, str]] = {}
"""Random digests by an object's identity; each keeps its object, so that no later one reuses it."""


def values(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted keys with scalar values, with objects replaced by their names.

    Args:
        keys: "model.name" may be a class or function, "data.name" a pair of arrays, "audit.attacks"
            a list of functions; all other values stay the same.

    Raises:
        InputError: an object is of another kind.
    """
    rules: dict[str, Callable[[Any], str]] = {
        "model.name": model,
        "data.name": data,
        "audit.attacks": attacks,
    }
    return {
        key: value if key not in rules or isinstance(value, str) else rules[key](value)
        for key, value in keys.items()
    }


def model(build: Callable[..., Any]) -> str:
    """Return a name for a network's class or builder. Raises InputError for other arguments."""
    if isinstance(build, type) or inspect.isroutine(build):
        fewer = ((2, lambda shape, classes, _: build(shape, classes)), (0, lambda *_: build()))
        for takes, builder in ((3, build), *fewer):
            try:
                inspect.signature(build).bind(*range(takes))
            except TypeError:
                continue
            return give(builder, _title(build), _identity(build))
        raise InputError(
            f"model is {_title(build)}{inspect.signature(build)}; it must take no parameters, "
            "(shape, classes), or (shape, classes, hidden)"
        )
    raise InputError(
        f"model is a {type(build).__name__}; give a class or a function that builds the network, "
        "which every trial calls anew"
    )


def data(arrays: Sequence[npt.ArrayLike]) -> str:
    """Return a name for a pair (features, labels), as `fedsim.learning.data.arrays.dataset_of`.

    Raises:
        InputError: it is not a pair of arrays.
    """
    features, labels = pair(arrays)
    digest = hashlib.sha256()
    for array in (features, labels):
        digest.update(f"{array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)

    def loader(source: DataConfig) -> Dataset:
        return dataset_of(source, Path("data"), features, labels, {})

    return give(loader, "data", digest.hexdigest())


def pair(arrays: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return copies of (features, labels). Raises InputError for no pair, or Python objects."""
    if not isinstance(arrays, Sequence) or len(arrays) != 2:
        raise InputError("data is not a pair; give (features, labels), two arrays of equal length")
    features, labels = (np.array(array) for array in arrays)  # copies that no caller can change
    if features.dtype.hasobject or labels.dtype.hasobject:
        raise InputError("data holds Python objects; give arrays of numbers, or labels as text")
    return features, labels


def attacks(functions: Sequence[Callable[..., Any] | Attack | str]) -> str:
    """Return names for membership inference attacks, separated by commas.

    Args:
        functions: each (targets, shadows or None) -> scores [N, n], higher where membership is
            likelier; or an `Attack`, which states what else it needs; or the name of one.

    Raises:
        InputError: it is not a list, or has another entry.
    """
    if not isinstance(functions, Sequence):
        raise InputError(f"attacks is a {type(functions).__name__}; give a list of functions")
    return ",".join(each if isinstance(each, str) else _attack(each) for each in functions)


def _attack(function: Callable[..., Any] | Attack) -> str:
    if isinstance(function, Attack):
        source = _identity(function.score)
        return give(function, _title(function.score), source)
    if not callable(function):
        raise InputError(f"attacks holds a {type(function).__name__}; give functions")
    attack = Attack(function, _title(function), "given in Python")
    return give(attack, _title(function), _identity(function))


def _title(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _identity(code: Any) -> str:
    """Return a digest of an object, which no other object and no other process has."""
    return _tokens.setdefault(id(code), (code, secrets.token_hex(32)))[1]
