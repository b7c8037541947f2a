"""A training function of a notebook, written as the file that its audit imports."""

import ast
import inspect
import linecache
import math
import symtable
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent
from typing import Any

import numpy as np

from adversaries.errors import InputError

OWN = "__main__"
"""Module of a notebook and of a script."""

PLAIN = (bool, int, float, str, bytes, type(None), tuple, list, dict)


@contextmanager
def named(function: Callable[..., Any] | str) -> Iterator[str]:
    """Yield FILE:NAME of a training function, while the block runs.

    A function of a notebook is written into a file, with the functions and classes of the notebook
    that it uses, its imports, and its plain numbers, texts and collections of these.

    Raises:
        InputError: the function uses another value of the notebook, or has no source.
    """
    if isinstance(function, str):
        yield function
        return
    name, module = getattr(function, "__name__", ""), getattr(function, "__module__", "")
    here = getattr(sys.modules.get(module), name, None)
    if here is not function or not isinstance(inspect.unwrap(function), types.FunctionType):
        raise InputError("the loop is no function of its own; define it with def, outside others")
    if module != OWN:
        yield f"{module}:{name}"
        return
    with TemporaryDirectory(prefix="fedsim-loop-") as folder:
        written: dict[str, str] = {}
        _add(name, function, vars(sys.modules[OWN]), written, name)
        file = Path(folder) / "loop.py"
        file.write_text("\n".join(written.values()), encoding="utf-8")
        yield f"{file}:{name}"


@contextmanager
def stored(data: Any) -> Iterator[str | None]:
    """Yield the name of data, while the block runs; arrays are written into a file.

    Args:
        data: a name, (features [n, ...], labels [n]), or None.

    Raises:
        InputError: as `given.pair`.
    """
    if isinstance(data, str | None):
        yield data
        return
    from fedsim.game import given  # noqa: PLC0415  (the attacks are slow to import)

    features, labels = given.pair(data)
    with TemporaryDirectory(prefix="fedsim-data-") as folder:
        file = Path(folder) / "data.npz"
        np.savez(file, features=features, labels=labels)
        yield str(file)


def _add(
    name: str, value: Any, scope: Mapping[str, Any], written: dict[str, str], loop: str
) -> None:
    """Add the lines that define a name, behind those of the names that it uses."""
    if name in written:
        return
    if isinstance(value, types.ModuleType):
        written[name] = f"import {value.__name__} as {name}"
    elif type(value) in PLAIN and _is_literal(value):
        written[name] = f"{name} = {value!r}"
    elif (place := getattr(value, "__module__", OWN)) != OWN and hasattr(value, "__name__"):
        written[name] = f"from {place} import {value.__name__} as {name}"
    elif isinstance(inspect.unwrap(value), types.FunctionType | type):
        written[name] = ""  # functions may call each other
        source = _source(value, loop)
        _check_defaults(value, source, scope)
        for used in _globals(source):
            if used in scope:
                _add(used, scope[used], scope, written, loop)
        own = value.__name__ == name or not value.__name__.isidentifier()  # a lambda's line
        alias = "" if own else f"{name} = {value.__name__}\n"
        written[name] = written.pop(name) or "\n".join([*_submodules(source, scope), source, alias])
    else:
        raise InputError(
            f"the loop uses '{name}', which is a {type(value).__name__} of the notebook; make it "
            "inside the function, or put the loop in a file"
        )


def _is_literal(value: object) -> bool:
    """Return whether a value is what its text says, which nan, for example, is not."""
    if isinstance(value, float):
        return math.isfinite(value)
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False


def _globals(source: str) -> list[str]:
    """Return the names that a definition takes from around it, and not from its own scopes."""

    def within(table: symtable.SymbolTable) -> Iterator[str]:
        top = table.get_type() == "module"
        for each in table.get_symbols():
            if each.is_referenced() and (top or each.is_global()):
                yield each.get_name()
        for inner in table.get_children():
            yield from within(inner)

    return list(dict.fromkeys(within(symtable.symtable(source, "loop", "exec"))))


def _submodules(source: str, scope: Mapping[str, Any]) -> Iterator[str]:
    """Yield the imports of submodules that a definition reaches through their package."""
    for node in ast.walk(ast.parse(source)):
        text = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        name, _, rest = text.partition(".")
        package = scope.get(name)
        if isinstance(package, types.ModuleType):
            path = f"{package.__name__}.{rest}"
            if path in sys.modules:
                yield f"import {path}"


def _check_defaults(value: Any, source: str, scope: Mapping[str, Any]) -> None:
    """Raise InputError if a default may be another value of the notebook than when it was taken."""
    found = ast.parse(source).body[0]
    if not isinstance(found, ast.FunctionDef):
        return
    kept = inspect.unwrap(value)
    given = [*zip(found.args.defaults, kept.__defaults__ or (), strict=False)]
    by_name = kept.__kwdefaults__ or {}
    for argument, node in zip(found.args.kwonlyargs, found.args.kw_defaults, strict=True):
        given += [] if node is None else [(node, by_name[argument.arg])]
    for default, taken in given:
        for part in ast.walk(default):
            name = part.id if isinstance(part, ast.Name) else ""
            computed = part is not default and type(scope.get(name)) in PLAIN
            if name in scope and (computed or (part is default and scope[name] is not taken)):
                raise InputError(
                    f"'{name}' may have changed since '{value.__name__}' took it as a default; "
                    "define the function again, with the name or the number alone"
                )


def _source(value: Any, loop: str) -> str:
    """Return the source of a function or a class, also of a class in a notebook's cell."""
    try:
        if not isinstance(value, type):
            return dedent(inspect.getsource(value))
        for method in filter(inspect.isfunction, vars(value).values()):
            lines = linecache.getlines(inspect.getfile(method))
            for node in ast.walk(ast.parse("".join(lines))):
                if isinstance(node, ast.ClassDef) and node.name == value.__name__:
                    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                    return dedent("".join(lines[first - 1 : node.end_lineno]))
    except (OSError, TypeError, SyntaxError):
        pass
    raise InputError(
        f"the source of '{value.__name__}' is not known; put the loop in a file, and name "
        f"FILE:{loop}"
    )
