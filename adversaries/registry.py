"""Registries: extensions by the name that a user writes.

A registry is a dictionary from names to functions. A user's own code has a name of the form
"package.module:name" instead, which the machine's owner must have allowed.
"""

import difflib
import importlib
import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from adversaries.errors import InputError

Entry = TypeVar("Entry")

ALLOWED = "FEDSIM_ALLOW_CODE"
"""Environment variable with the names of code that may be imported, separated by commas."""

GIVEN = "given:"
"""Prefix of the names of objects that exist in this process only."""

_objects: dict[str, Any] = {}


def lookup(registry: Mapping[str, Entry], name: str, key: str) -> Entry:
    """Return the entry of this name, or the user's own code "package.module:name".

    Args:
        registry: entries by name.
        name: what the user wrote.
        key: the option or key with the name, for the error.

    Raises InputError for an unknown name, or code that is not allowed or cannot be imported.
    """
    if name in registry:
        return registry[name]
    if name.startswith(GIVEN):
        if name not in _objects:
            raise InputError(
                f"{key} is '{name}', an object that another process gave to the Python API; give "
                "it again in this process, or put it in a module and name it package.module:name"
            )
        return _objects[name]
    prefix = name.partition(":")[0] + ":"  # a registry may use a prefix itself, as torchvision:
    if is_code(name) and not any(entry.startswith(prefix) for entry in registry):
        return _imported(name, key)
    near = difflib.get_close_matches(name, registry, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"give one of {', '.join(registry)}"
    raise InputError(f"{key} is '{name}', which is not known; {hint}")


def is_code(name: str) -> bool:
    """Return whether a name has the form "package.module:name"."""
    module, _, attribute = name.partition(":")
    return attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))


def give(entry: Any, title: str, digest: str) -> str:
    """Return a name by which `lookup` returns an object, in this process only.

    Args:
        entry: what a registry would hold.
        title: for readers.
        digest: of the object, in hexadecimal: objects with one name are the same.
    """
    name = f"{GIVEN}{title if title.isidentifier() else 'own'}_{digest[:16]}"
    _objects[name] = entry
    return name


def titled(name: str) -> str:
    """Return a name for readers: without the digest, where Python gave the object."""
    return name.removeprefix(GIVEN).rpartition("_")[0] if name.startswith(GIVEN) else name


def allow(names: Iterable[str]) -> None:
    """Allow this process and its child processes to import code.

    Names may come from the command line's options or a node's own configuration, which the
    machine's owner wrote; never from an experiment's configuration or a message.

    names: each of the form "package.module:name".
    Raises InputError for a name of another form.
    """
    listed = [name.strip() for name in names if name.strip()]
    for name in listed:
        if not is_code(name):
            raise InputError(f"'{name}' is not a name of code; write package.module:name")
    os.environ[ALLOWED] = ",".join(dict.fromkeys([*_allowed(), *listed]))


def _allowed() -> list[str]:
    return [name for name in os.environ.get(ALLOWED, "").split(",") if name]


def _imported(name: str, key: str) -> Any:
    if name not in _allowed():
        raise InputError(
            f"{key} is '{name}', code that this machine does not allow; if you trust it, allow it "
            f"with fedsim --allow-code {name} COMMAND, or in a node's configuration with "
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
