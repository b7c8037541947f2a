"""How long a node may compute an answer, beside how long the server waits for it."""

import os

NODE = "FEDSIM_DEADLINE"
"""The DEADLINE of a deployed node's settings.env, in the environment of its processes."""


def unheard(timeout: float) -> str:
    """Return a warning if this node may compute longer than the server waits; "" otherwise.

    Args:
        timeout: seconds that the server waits, `federation.timeout`.
    """
    deadline = float(os.environ.get(NODE, "0"))
    if deadline <= timeout:
        return ""
    return (
        f"DEADLINE is {deadline:g} s in this node's settings.env, but the server waits for "
        f"federation.timeout = {timeout:g} s: after that this node computes an answer that the "
        f"server does not read; set DEADLINE={timeout:g}"
    )
