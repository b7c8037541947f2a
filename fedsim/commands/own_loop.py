"""A training function of a notebook, written as the file that its audit imports."""

import ast
import builtins
import inspect
import linecache
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent
from typing import Any

from adversaries.errors import InputError

OWN = "__main__"
"""Module of a notebook and of a script."""

PLAIN = bool | int | float | str | bytes | None


@contextmanager
def named(function: Callable[..., Any] | str) -> Iterator[str]:
    """Yield FILE:NAME of a training function, while the block runs.

    A function of a notebook is written into a file, with the functions and classes of the notebook
    that it uses, its imports, and its plain numbers and texts.

    Raises:
        InputError: the function uses another value of the notebook, or has no source.
    """
    if isinstance(function, str):
        yield function
        return
    name, module = getattr(function, "__name__", ""), getattr(function, "__module__", "")
    if not name.isidentifier() or getattr(function, "__closure__", None):
        raise InputError("the loop is no function of its own; define it with def, outside others")
    if module != OWN:
        yield f"{module}:{name}"
        return
    with TemporaryDirectory(prefix="fedsim-loop-") as folder:
        lines: dict[str, str] = {}
        _add(name, function, lines)
        file = Path(folder) / "loop.py"
        file.write_text("\n".join(lines.values()), encoding="utf-8")
        yield f"{file}:{name}"


def _add(name: str, value: Any, lines: dict[str, str]) -> None:
    """Add the line, or the source, that defines a name, behind what it uses."""
    if name in lines:
        return
    if isinstance(value, types.ModuleType):
        lines[name] = f"import {value.__name__} as {name}"
    elif isinstance(value, PLAIN):
        lines[name] = f"{name} = {value!r}"
    elif (place := getattr(value, "__module__", OWN)) != OWN and hasattr(value, "__name__"):
        lines[name] = f"from {place} import {value.__name__} as {name}"
    elif isinstance(value, types.FunctionType | type):
        lines[name] = ""  # functions may call each other
        source = _source(name, value)
        scope = vars(__import__(OWN)) if isinstance(value, type) else value.__globals__
        for node in ast.walk(ast.parse(source)):
            used = node.id if isinstance(node, ast.Name) else ""
            if used in scope and not hasattr(builtins, used):
                _add(used, scope[used], lines)
        lines[name] = lines.pop(name) or source
    else:
        raise InputError(
            f"the loop uses '{name}', which is a {type(value).__name__} of the notebook; make it "
            "inside the function, or put the loop in a file"
        )


def _source(name: str, value: Any) -> str:
    """Return the source of a function or a class, also of a class in a notebook's cell."""
    try:
        if not isinstance(value, type):
            return dedent(inspect.getsource(value))
        method = next(each for each in vars(value).values() if inspect.isfunction(each))
        cell = "".join(linecache.getlines(inspect.getfile(method)))
        classes = [node for node in ast.walk(ast.parse(cell)) if isinstance(node, ast.ClassDef)]
        found = next(node for node in classes if node.name == value.__name__)
        return dedent(ast.get_source_segment(cell, found, padded=True) or "")
    except (OSError, TypeError, StopIteration):
        raise InputError(
            f"the source of '{name}' is not known; put the loop in a file, and name FILE:{name}"
        ) from None
