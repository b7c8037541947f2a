"""A process that ends with its parent, however the parent ends."""

import ctypes
import signal

LIBC = ctypes.CDLL(None, use_errno=True)
PARENT_DEATH = 1
"""Linux's PR_SET_PDEATHSIG."""


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Ask Linux to send this process a signal when its parent ends."""
    LIBC.prctl(PARENT_DEATH, number)
