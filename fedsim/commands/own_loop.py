"""What the audit of a loop imports in a process of its own: a function by name, data in a file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import isfunction, unwrap
from pathlib import Path
from sys import modules
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from adversaries.errors import InputError


def named(function: Callable[..., Any] | str) -> str:
    """Return the name under which another process imports a training function.

    Raises:
        InputError: it is a function of a notebook, or no function of a module.
    """
    if isinstance(function, str):
        return function
    name, module = getattr(function, "__name__", ""), getattr(function, "__module__", "")
    if module == "__main__":
        raise InputError(
            f"'{name}' is a function of a notebook or script, which another process cannot import; "
            f"write it into a file, such as with %%writefile loop.py, and name loop.py:{name}"
        )
    if getattr(modules.get(module), name, None) is not function or not isfunction(unwrap(function)):
        raise InputError("the loop is no function of its own; define it with def, outside others")
    return f"{module}:{name}"


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
