"""Looking an extension up by the name that a user gave.

A registry is a plain dictionary from names to functions: a new dataset, model, partition,
dissimilarity, accountant or estimator is one function and one entry.
"""

import difflib
from collections.abc import Mapping
from typing import TypeVar

from fedsim.errors import InputError

Entry = TypeVar("Entry")


def lookup(registry: Mapping[str, Entry], name: str, key: str) -> Entry:
    """Return the entry of this name; `key` is the option that named it.

    Raises InputError that offers the nearest name, or lists them all.
    """
    if name in registry:
        return registry[name]
    near = difflib.get_close_matches(name, registry, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(registry)}"
    raise InputError(f"{key} is '{name}', which is not known; {hint}")
