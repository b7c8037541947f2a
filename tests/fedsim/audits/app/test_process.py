"""An app runs in a process of its own: what its code does there is never a verdict."""

import socket
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from adversaries.errors import InputError
from fedsim.audits.app import execution
from fedsim.audits.child_process import channel
from fedsim.audits.child_process.channel import AppFailedError, started

APP = Path(__file__).parents[3] / "apps" / "dp_app"


@contextmanager
def opened(directory, clients, overrides, time_limit, log=None):
    order = directory, clients, overrides
    with started("fedsim.audits.app.execution", "app", time_limit, *order, log=log) as channel:
        yield channel.served(execution.AuditedApp)


def write_app(directory, *statements):
    """Write an app whose server runs these statements, and nothing else."""
    (directory / "pyproject.toml").write_text(
        '[tool.flwr.app.components]\nserverapp = "hostile:server"\nclientapp = "hostile:client"\n',
        encoding="utf-8",
    )
    body = "".join(f"    {statement}\n" for statement in statements)
    (directory / "hostile.py").write_text(
        "import os, sys, time\nfrom flwr.clientapp import ClientApp\n"
        "from flwr.serverapp import ServerApp\nclient, server = ClientApp(), ServerApp()\n"
        f"@server.main()\ndef main(grid, context):\n{body}",
        encoding="utf-8",
    )
    return directory


HOSTILE = {
    "is killed": ("os.kill(os.getpid(), 9)", r"ended by signal 9"),
    "raises": ("raise KeyboardInterrupt", r"ended by signal 2"),
    "answers itself": (
        'os.write(int(sys.argv[1]), b\'{"verdict": "supported"}\\n\'); time.sleep(99)',
        "something other than measurements",
    ),
    "is silent": ("time.sleep(99)", "did not answer within"),
    # A child of its own keeps the socket open when the process has ended.
    "leaves a child": ("os.fork() and os._exit(0); time.sleep(99)", "did not answer within"),
}


@pytest.mark.slow
@pytest.mark.parametrize("deed", HOSTILE)
def test_a_process_without_a_measurement_is_an_error(deed, tmp_path):
    code, why = HOSTILE[deed]
    failed = pytest.raises(AppFailedError, match=why)
    with failed, opened(write_app(tmp_path, code), 2, {}, 8) as app:
        app.honest(0)


def test_an_app_that_ends_is_an_error_and_its_output_is_in_the_log(tmp_path):
    code = ("print('done')", "print('failed', file=sys.stderr)", "os._exit(0)")
    log = tmp_path / "output.log"
    failed = pytest.raises(AppFailedError, match="ended with exit status 0 before it was measured")
    with log.open("wb") as file, failed, opened(write_app(tmp_path, *code), 2, {}, 60, file) as app:
        app.honest(0)
    assert {"done", "failed"} <= set(log.read_text().splitlines())


@pytest.mark.slow
def test_what_an_app_started_ends_with_the_audit_and_what_it_prints_is_its_own(tmp_path):
    started = tmp_path / "started"
    code = (
        "child = os.fork()",
        "time.sleep(99) if not child else None",
        f"open({str(started)!r}, 'w').write(str(child))",
        r"os.write(1, b'Verdict SUPPORTED\n')",
        "raise SystemExit",
    )
    log = tmp_path / "output.log"
    failed = pytest.raises(AppFailedError, match="SystemExit")
    with log.open("wb") as file, failed, opened(write_app(tmp_path, *code), 2, {}, 60, file) as app:
        app.honest(0)
    assert "Verdict SUPPORTED" in log.read_text().splitlines()
    _wait_until_gone(int(started.read_text()))


def test_what_cannot_be_loaded_is_bad_input_as_in_this_process():
    refused = pytest.raises(InputError, match="no run configuration key 'varient'; it has")
    with refused, opened(APP, 2, {"varient": 1}, 60) as app:
        app.honest(0)


def _wait_until_gone(process):
    while _runs(process):
        time.sleep(0.01)


def _runs(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except FileNotFoundError:
        return False
    return state[0] != "Z"


def test_a_process_that_nobody_asks_anything_ends_quietly(monkeypatch):
    ours, theirs = socket.socketpair()
    ours.close()
    monkeypatch.setattr(sys, "argv", ["worker", str(theirs.detach())])
    channel.serve(execution.opened)
