"""Logs are kept short, and one line tells one thing."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta

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
