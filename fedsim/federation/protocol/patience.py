"""How long a node may compute an answer, beside how long the server waits for it."""

import logging
import os

NODE = "FEDSIM_DEADLINE"
"""The DEADLINE of a deployed node's settings.env, in the environment of its processes."""


def warn(timeout: float) -> None:
    """Log a warning if this node may compute longer than the server waits.

    timeout: seconds that the server waits, `federation.timeout`.
    """
    if said := complaint(float(os.environ.get(NODE, "0")), timeout):
        logging.getLogger(__name__).warning(said)


def complaint(deadline: float, timeout: float) -> str:
    """Return what is wrong where a node's DEADLINE is longer than the server waits, else ""."""
    if deadline <= timeout:
        return ""
    return (
        f"DEADLINE is {deadline:g} s in this node's settings.env, but the server waits for "
        f"federation.timeout = {timeout:g} s: after that this node computes an answer that the "
        f"server does not read; set DEADLINE={timeout:g}"
    )
