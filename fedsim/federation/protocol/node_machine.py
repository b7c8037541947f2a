"""A node's memory between messages.

The memory is Flower's `Context.state`, which drops large states; with a `state-path` it is a file.
"""

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Context

from fedsim.common import private_files, reading
from fedsim.federation.protocol import messages

Arrays = dict[str, npt.NDArray[Any]]


def remember(context: Context, name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Remember arrays under a name. They replace earlier arrays of that name.

    Raises OSError if the file cannot be written.
    Raises InputError if the folder is a symbolic link.
    """
    path = _path(context, name)
    if path is None:
        context.state[name] = messages.array_record(**arrays)
        return
    private_files.make_directory(path.parent)
    with private_files.replacing(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # allow_pickle's bool


def recall(context: Context, name: str) -> Arrays:
    """Return the arrays of a name; empty if they are missing or unreadable."""
    path = _path(context, name)
    if path is None:
        record = context.state.array_records.get(name)
        return {} if record is None else messages.arrays_of(record)
    try:
        return reading.arrays(path)
    except reading.DAMAGE:
        return {}


def forget(context: Context, names: Iterable[str]) -> None:
    """Delete the files of some names, which hold beliefs about a person."""
    for name in names:
        if (path := _path(context, name)) is not None:
            with contextlib.suppress(OSError):
                path.unlink()


def _path(context: Context, name: str) -> Path | None:
    folder = context.node_config.get("state-path")
    if not folder:
        return None
    # Several nodes of one machine may share the folder.
    return Path(str(folder)).resolve() / f"{context.run_id}-{context.node_id}-{name}.npz"
