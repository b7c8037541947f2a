"""Only the processes of a run are answered."""

import asyncio
import os
import socket
import subprocess
import sys
from contextlib import contextmanager

import httpx
import psutil
import pytest
from starlette.responses import PlainTextResponse

from fedsim.federation.runtimes.private_superlink import Private, held_by_descendant, starter

CALL = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print(connection.getsockname()[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def _called():
    """Give a child, the end that it calls, and its connection to that."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = server.getsockname()
        with subprocess.Popen(
            [sys.executable, "-c", CALL, str(here[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout is not None
            there = ("127.0.0.1", int(child.stdout.readline()))
            yield psutil.Process(child.pid), here, (there, here)


def test_a_connection_of_a_descendant_is_told_from_any_other():
    own = psutil.Process()
    with _called() as (child, here, connection):
        assert held_by_descendant(own, connection)
        there, _ = connection
        assert not held_by_descendant(own, (there, ("127.0.0.1", here[1] + 1)))
        assert not held_by_descendant(child, connection)
        with socket.create_connection(here) as mine:
            assert not held_by_descendant(own, (mine.getsockname(), here))
    assert not held_by_descendant(child, connection)  # it has ended, and has no descendants


def test_whoever_is_not_of_the_run_is_refused():
    async def status(ancestor, connection):
        transport = httpx.ASGITransport(
            Private(PlainTextResponse("passed"), ancestor), client=connection[0]
        )
        base = f"http://127.0.0.1:{connection[1][1]}"
        async with httpx.AsyncClient(transport=transport, base_url=base) as client:
            return (await client.post("/v1/control/start-run")).status_code

    with _called() as (child, _, connection):
        assert asyncio.run(status(psutil.Process(os.getpid()), connection)) == 200
        assert asyncio.run(status(child, connection)) == 403


def test_nobody_is_answered_once_the_process_that_started_it_has_ended(monkeypatch):
    with _called() as (child, _, _):
        with pytest.raises(SystemExit, match="has ended"):  # this one's parent is another
            starter(child.pid)
        monkeypatch.setattr(os, "getppid", lambda: child.pid)
        assert starter(child.pid).pid == child.pid
    with pytest.raises(SystemExit, match="has ended"):
        starter(child.pid)
    monkeypatch.setattr(os, "getppid", lambda: 1)  # as of an orphan
    with pytest.raises(SystemExit, match="is the system's first"):
        starter(1)
