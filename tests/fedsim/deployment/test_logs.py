"""Logs are kept short, and say what went wrong last."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from fedsim.deployment import logs


def test_a_long_log_is_copied_away_and_who_writes_it_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "LARGEST", 10)
    (tmp_path / "short.log").write_text("short")
    with (tmp_path / "long.log").open("a") as file:
        file.write("a long log\n")
        file.flush()
        logs.rotate(tmp_path)
        file.write("more\n")
    contents = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert contents == {"short.log": "short", "long.log.1": "a long log\n", "long.log": "more\n"}


def test_a_log_that_cannot_be_copied_stays_as_it_is_and_keeps_no_other_from_it(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(logs, "LARGEST", 10)
    for name in ("proxy.log", "superlink.log"):
        (tmp_path / name).write_text("a long log\n")
    (tmp_path / "proxy.log.1").mkdir()
    logs.rotate(tmp_path)
    assert (tmp_path / "proxy.log").read_text() == "a long log\n"
    assert (tmp_path / "superlink.log").read_text() == ""
    assert "cannot shorten proxy.log" in caplog.text


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            "\x1b[91mERROR \x1b[0m: Exit Code: 305\n[code: 2004] Failed to activate.\nINFO: over\n",
            "[code: 2004] Failed to activate.",
        ),
        ("\x1b[92mINFO \x1b[0m: SuperNode terminated gracefully.\n", "terminated gracefully."),
        (
            "ERROR: Exit Code: 606\nit has Flower 1.42.0, a mismatch: pip\nUpgrade\n",
            "it has Flower 1.42.0, a mismatch: pip",
        ),
        ("Traceback:\nOSError: no\x07 port\n", "OSError: no port"),
        ("INFO: all is well\n", ""),
        (
            "OSError: no port\nERROR : [/v1/runtime/send-task-heartbeat][ApiError:1008] Runtime "
            "task-token authentication failed.\n",
            "OSError: no port",
        ),
        (
            "[code: 2004] Failed.\nERROR : [/v1/runtime/acquire-task][ApiError:1008] SuperExec "
            "authentication failed for /flwr.proto.Runtime/AcquireTask.\n"
            "ERROR the SuperNode ended with status 1; it starts again in 5 s\n",
            "[code: 2004] Failed.",
        ),
        (
            "ERROR :     Exit Code: 305\nFailed to connect.\n[SSL: WRONG_VERSION_NUMBER] wrong\n",
            "[SSL: WRONG_VERSION_NUMBER] wrong",
        ),
    ],
)
def test_the_last_complaint_of_a_log(tmp_path, log, said):
    (tmp_path / "a.log").write_text(log)
    assert logs.complaint(tmp_path / "a.log").endswith(said)
    assert bool(logs.complaint(tmp_path / "a.log")) == bool(said)
    assert logs.complaint(tmp_path / "none.log") == ""


def test_a_line_tells_when_where_how_grave_and_what(capfd):
    program = (
        "import logging; from fedsim.deployment import logs; logs.begin('client-0')\n"
        "logging.getLogger('fedsim.deployment').info('begins')\n"
        "try: 1 / 0\n"
        "except ZeroDivisionError: logging.exception('it failed')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    begins, failed = capfd.readouterr().err.splitlines()
    time, *others = begins.split()
    assert others == ["client-0", "INFO", "begins"]
    assert abs(datetime.fromisoformat(time) - datetime.now(UTC)) < timedelta(minutes=1)
    assert "ERROR it failed | Traceback" in failed
