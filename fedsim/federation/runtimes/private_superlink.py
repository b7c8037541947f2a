"""A SuperLink for one run, which answers nobody but the processes of that run.

Flower's SuperLink asks nobody who they are: its Control API runs the code of whoever connects, its
Runtime API hands out the configuration of runs and takes results. On loopback that is every user of
the machine, and every page in a browser on it. Here the socket is bound by the process that starts
the SuperLink, so that no other program can take its place, and a request is answered only if one of
that process's descendants holds the other end of its connection.

    python -m fedsim.federation.runtimes.private_superlink SOCKET STARTER OPTIONS

SOCKET is the number of a bound socket that is inherited, STARTER that of the process that starts
it, OPTIONS are those of `flower-superlink`.
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
"""The number of the system's, or a container's, first process, which adopts all orphans."""


def held_by_descendant(ancestor: psutil.Process, connection: tuple[End, End]) -> bool:
    """Return whether a living descendant of a living process holds a TCP connection."""
    try:
        descendants = ancestor.children(recursive=True)
    except psutil.NoSuchProcess:
        return False
    return any(connection in _connections(process) for process in descendants)


def _connections(process: psutil.Process) -> set[tuple[End, End]]:
    try:
        found = process.net_connections("tcp4")
    except psutil.Error:  # it has ended meanwhile
        return set()
    return {(tuple(each.laddr), tuple(each.raddr)) for each in found if each.raddr}


class Private:
    """An ASGI app that passes on the requests of a process's descendants, and refuses all other."""

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

    Raises SystemExit if it did not start this one or has ended, so that this one is a child of the
    system's first process by now: everybody descends from that one, which is therefore never taken.
    """
    with suppress(psutil.NoSuchProcess):
        found = psutil.Process(pid)
        # Asked after it was looked up: as long as it is the parent nobody else has its number.
        if os.getppid() == pid != FIRST:
            return found
    reason = "is the system's first, start it from another" if pid == FIRST else "has ended"
    raise SystemExit(f"the process {pid} that this SuperLink is for {reason}")


def main() -> None:
    """Serve until the process is ended."""
    bound = socket.socket(fileno=int(sys.argv.pop(1)))
    ancestor = starter(int(sys.argv.pop(1)))
    app = Private(superlink_app(), ancestor)
    uvicorn.Server(uvicorn.Config(app)).run(sockets=[bound])


if __name__ == "__main__":
    main()
