"""A check whether a program listens on a port."""

import socket

TIMEOUT = 5.0
"""Seconds to accept a connection."""


def listening(host: str, port: int, timeout: float = TIMEOUT) -> bool:
    """Return whether a program accepts a connection on a port.

    timeout: in seconds.
    """
    try:
        with socket.create_connection((host, port), timeout=timeout):
            return True
    except OSError:
        return False
