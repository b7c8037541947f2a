"""Classes, functions and arrays of this Python process, under names that a configuration can hold.

A name has a digest, such as "given:Net_1f3a…", of the source and of the constants, functions and
classes that it refers to: the same call continues its run, and another call is refused. Other
processes refuse it, since they lack the object.
"""

import hashlib
import inspect
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.attacks.membership_attacks import Attack
from adversaries.errors import InputError
from adversaries.registry import give
from fedsim.learning.data.arrays import dataset_of
from fedsim.learning.data.dataset import Dataset, Source

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
        for takes, builder in ((3, build), (0, lambda *_: build())):
            try:
                inspect.signature(build).bind(*range(takes))
            except TypeError:
                continue
            return give(builder, _title(build), _of_source(build))
        raise InputError(
            f"model is {_title(build)}{inspect.signature(build)}; it must take no parameters, "
            "or (shape, classes, hidden)"
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

    def loader(source: Source) -> Dataset:
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
        source = _of_source(function.score)
        return give(function, _title(function.score), source)
    if not callable(function):
        raise InputError(f"attacks holds a {type(function).__name__}; give functions")
    attack = Attack(function, _title(function), "given in Python")
    return give(attack, _title(function), _of_source(function))


def _title(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _of_source(code: Any) -> str:
    """Return a digest of code's source and of all that it uses; a random one if that is unknown."""
    try:
        used = "\n".join(_described(code, set()))
        return hashlib.sha256(used.encode()).hexdigest()
    except (OSError, TypeError, ValueError):  # also an empty cell
        return _tokens.setdefault(id(code), (code, secrets.token_hex(32)))[1]


def _described(value: Any, seen: set[int]) -> Iterator[str]:
    """Yield what decides a value: names in libraries, source of own code, and what that refers to.

    Raises TypeError for values of other kinds, and OSError for code without source.
    """
    if value is None or isinstance(value, bool | int | float | str | bytes):
        yield repr(value)
    elif isinstance(value, tuple | list | dict):
        yield f"{type(value).__name__} {len(value)}"
        for each in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from _described(each, seen)
    elif id(value) not in seen:
        seen.add(id(value))
        if _in_library(value):
            yield f"{value.__name__} {getattr(value, '__module__', '')}"
            return
        if not (isinstance(value, type) or inspect.isfunction(value)):
            raise TypeError(f"a {type(value).__name__} has unknown content")
        yield inspect.getsource(value)
        for each in _of_class(value) if isinstance(value, type) else _of_function(value):
            yield from _described(each, seen)


def _of_class(code: type) -> Iterator[Any]:
    yield from code.__bases__
    for name, each in vars(code).items():
        member = getattr(each, "__func__", getattr(each, "fget", each))
        if inspect.isfunction(member):
            yield from _of_function(member)
        elif not name.startswith("__"):
            yield member


def _of_function(function: FunctionType) -> Iterator[Any]:
    yield from (function.__defaults__, function.__kwdefaults__)
    yield from (cell.cell_contents for cell in function.__closure__ or ())
    codes = [function.__code__]
    for code in codes:
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
        used = [name for name in code.co_names if name in function.__globals__]
        yield from (function.__globals__[name] for name in used)


def _in_library(value: Any) -> bool:
    """Return whether a module, class or function comes with Python, a package or fedsim."""
    if not (inspect.ismodule(value) or isinstance(value, type) or inspect.isroutine(value)):
        return False
    name = value.__name__ if inspect.ismodule(value) else value.__module__
    top = str(name).partition(".")[0]
    place = Path(getattr(sys.modules.get(top), "__file__", None) or "")
    return (
        top in (*sys.stdlib_module_names, "fedsim", "adversaries")
        or not {"site-packages", "dist-packages"}.isdisjoint(place.parts)
    ) and top != "__main__"
