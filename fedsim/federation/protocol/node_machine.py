"""Checks of a node's machine, which has its own fedsim: its version and its time limit."""

import logging
import os

import fedsim
from adversaries.errors import InputError

VERSION = "FEDSIM_NODE_VERSION"
"""Environment variable of a deployed node's processes: the installed version of fedsim."""

DEADLINE = "FEDSIM_DEADLINE"
"""Environment variable of a deployed node's processes: DEADLINE of its settings.env, in seconds."""


def check_version() -> None:
    """Raise InputError if this node's machine has another version of fedsim than the server."""
    own = os.environ.get(VERSION, fedsim.__version__)
    if own != fedsim.__version__:
        raise InputError(
            f"this node has fedsim {own}, but the server has {fedsim.__version__}; install the "
            "server's version on the node's machine (install.sh of fedsim deploy upgrade) and "
            "restart it"
        )


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
