"""A node and the server of a deployment run the same program, or the node answers nothing.

What a node computes is the server's code, sent with the run, but what started it, and what it
imports besides, is what was installed on its machine. Of Flower's version the proxy takes care.
"""

import os

import fedsim
from adversaries.errors import InputError

NODE = "FEDSIM_NODE_VERSION"
"""The version that is installed on a node of a deployment, in the environment of its processes."""


def check() -> None:
    """Raise InputError if this node's machine has another fedsim than the server that asks."""
    own = os.environ.get(NODE, fedsim.__version__)
    if own != fedsim.__version__:
        raise InputError(
            f"this node has fedsim {own}, but the server {fedsim.__version__}: install the "
            "server's on the node's machine (install.sh of fedsim deploy upgrade) and restart it"
        )
