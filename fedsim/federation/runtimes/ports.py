"""Whether a program listens on a port."""

import socket

TIMEOUT = 5.0
"""Seconds that it has to answer."""


def listening(host: str, port: int, timeout: float = TIMEOUT) -> bool:
    """Return whether a program takes a connection on a port.

    timeout: how long it has, in seconds.
    """
    try:
        with socket.create_connection((host, port), timeout=timeout):
            return True
    except OSError:
        return False
