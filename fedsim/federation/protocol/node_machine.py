"""A node's machine, with its time limit and its memory between messages.

The memory is Flower's `Context.state`, which drops large states; with a `state-path` it is a file.
"""

import contextlib
import logging
import os
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


HEARD = "FEDSIM_HEARD"
"""Environment variable of a deployed SuperNode: a file that it touches when the server hears it."""

DEADLINE = "FEDSIM_DEADLINE"
"""Environment variable of a deployed node's processes: DEADLINE of its settings.env, in seconds."""


def warn_of_deadline(timeout: float) -> None:
    """Log a warning if this node may compute longer than the server waits."""
    if complaint := deadline_complaint(float(os.environ.get(DEADLINE, "0")), timeout):
        logging.getLogger(__name__).warning(complaint)


def deadline_complaint(deadline: float, timeout: float) -> str:
    """Return a complaint if a node's DEADLINE exceeds the server's timeout, else ""."""
    if deadline <= timeout:
        return ""
    return (
        f"DEADLINE is {deadline:g} s in this node's settings.env, but the server waits for "
        f"federation.timeout = {timeout:g} s; after that the server does not read an answer, so "
        f"set DEADLINE={timeout:g}"
    )
