"""Looking an extension up by the name that a user gave.

A registry is a plain dictionary from names to functions: a new dataset, model, partition,
dissimilarity, accountant or attack is one function and one entry. Code of a user's own goes by
"package.module:name" instead, where the machine's owner has allowed exactly that name.
"""

import difflib
import importlib
import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from adversaries.errors import InputError

Entry = TypeVar("Entry")

ALLOWED = "FEDSIM_ALLOW_CODE"
"""The environment variable with the names of code that may be imported, with commas between."""

GIVEN = "given:"
"""What begins the names of objects that only this process has."""

_objects: dict[str, Any] = {}


def lookup(registry: Mapping[str, Entry], name: str, key: str) -> Entry:
    """Return the entry of this name, or the user's own code of the name "package.module:name".

    Args:
        registry: entries by name.
        name: what the user wrote.
        key: the option that named it, for the error.

    Raises:
        InputError: an unknown name, with the nearest one or all of them; code that was not allowed
            on this machine, or that cannot be imported.
    """
    if name in registry:
        return registry[name]
    if name.startswith(GIVEN):
        if name not in _objects:
            raise InputError(
                f"{key} is '{name}', which was given to the Python API of another process; give it "
                "again there, or write it into a module and name it package.module:name"
            )
        return _objects[name]
    prefix = name.partition(":")[0] + ":"  # a registry may have one of its own, as torchvision:
    if is_code(name) and not any(known.startswith(prefix) for known in registry):
        return _imported(name, key)
    near = difflib.get_close_matches(name, registry, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(registry)}"
    raise InputError(f"{key} is '{name}', which is not known; {hint}")


def is_code(name: str) -> bool:
    """Return whether a name has the form "package.module:name"."""
    module, _, attribute = name.partition(":")
    return attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))


def give(entry: Any, title: str, digest: str) -> str:
    """Return a name by which `lookup` returns an object of this process, and of this one alone.

    Args:
        entry: what a registry would hold.
        title: for readers.
        digest: of the object, in hexadecimal: objects of one name are the same.
    """
    name = f"{GIVEN}{title if title.isidentifier() else 'own'}_{digest[:16]}"
    _objects[name] = entry
    return name


def allow(names: Iterable[str]) -> None:
    """Allow code to be imported by this process and those that it starts.

    Only what the machine's owner wrote may come here: the command line's options, or a node's own
    configuration; never an experiment's configuration or a message.

    Args:
        names: each of the form "package.module:name".

    Raises:
        InputError: a name of another form.
    """
    listed = [name.strip() for name in names if name.strip()]
    for name in listed:
        if not is_code(name):
            raise InputError(f"'{name}' names no code; write package.module:name")
    os.environ[ALLOWED] = ",".join(dict.fromkeys([*_allowed(), *listed]))


def _allowed() -> list[str]:
    return [name for name in os.environ.get(ALLOWED, "").split(",") if name]


def _imported(name: str, key: str) -> Any:
    if name not in _allowed():
        raise InputError(
            f"{key} is '{name}', code that nobody allowed on this machine; who trusts it allows it "
            f"with fedsim --allow-code {name} COMMAND, or in a node's config with "
            f'allow-code = "{name}"'
        )
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise InputError(
            f"{key} is '{name}', which cannot be imported: {type(error).__name__}: {error}; "
            "install it, or name its folder in PYTHONPATH"
        ) from error
