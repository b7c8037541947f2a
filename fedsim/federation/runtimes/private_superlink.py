"""A SuperLink for one run, which answers only the processes of that run.

Flower's SuperLink does not authenticate. Its Control API runs the code of every program that
connects, and its Runtime API hands out configurations and takes results. On loopback, every user of
the machine can connect, and every page in a browser on it. Here the process that starts the
SuperLink binds the socket, so no other program can take its place. A request is answered only if a
descendant of that process holds the other end of its connection.

    python -m fedsim.federation.runtimes.private_superlink SOCKET STARTER OPTIONS

SOCKET is the number of an inherited, bound socket. STARTER is the number of the process that starts
the SuperLink. OPTIONS are those of `flower-superlink`.
"""

import os
import socket
import sys
from contextlib import suppress

import psutil
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fedsim.federation.runtimes.flower_services import superlink_app

End = tuple[object, ...]
"""Address and port of one end of a connection."""

FIRST = 1
"""Number of the first process of a system or container, which adopts all orphans."""


def held_by_descendant(ancestor: psutil.Process, connection: tuple[End, End]) -> bool:
    """Return whether a living descendant of a living process holds a TCP connection."""
    try:
        descendants = ancestor.children(recursive=True)
    except psutil.NoSuchProcess:
        return False
    return any(connection in _connections(process) for process in descendants)


def _connections(process: psutil.Process) -> set[tuple[End, End]]:
    try:
        connections = process.net_connections("tcp4")
    except psutil.Error:  # the process has ended
        return set()
    return {(tuple(each.laddr), tuple(each.raddr)) for each in connections if each.raddr}


class Private:
    """An ASGI app that passes the requests of a process's descendants, and refuses all others."""

    def __init__(self, app: ASGIApp, ancestor: psutil.Process) -> None:
        self._app = app
        self._ancestor = ancestor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        app = self._app if self._lets_in(scope) else PlainTextResponse("not for you\n", 403)
        await app(scope, receive, send)

    def _lets_in(self, scope: Scope) -> bool:
        if scope["type"] == "lifespan":
            return True
        connection = tuple(scope["client"]), tuple(scope["server"])
        return held_by_descendant(self._ancestor, connection)


def starter(pid: int) -> psutil.Process:
    """Return the process that started this one.

    Raises SystemExit if it is not the parent. A process whose starter has ended is a child of the
    system's first process, from which all others descend. So the first process is never accepted.
    """
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        # Checked after the look-up: a living parent's number cannot belong to another process.
        if os.getppid() == pid != FIRST:
            return process
    reason = "is the system's first; start it from another" if pid == FIRST else "has ended"
    raise SystemExit(f"the process {pid} that this SuperLink is for {reason}")


def main() -> None:
    bound = socket.socket(fileno=int(sys.argv.pop(1)))
    ancestor = starter(int(sys.argv.pop(1)))
    app = Private(superlink_app(), ancestor)
    uvicorn.Server(uvicorn.Config(app)).run(sockets=[bound])


if __name__ == "__main__":
    main()
