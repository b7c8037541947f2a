"""Flower's commands are found where environments keep them."""

import json
import sys
from pathlib import Path

import pytest

from fedsim.federation.runtimes import flower_command
from fedsim.federation.runtimes.flower_command import (
    FlowerError,
    ProcessEndedError,
    Submission,
    environment,
    executable,
)


def _command(folder, name):
    folder.mkdir()
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o700)
    return str(path)


def test_commands_are_found_beside_python_or_on_the_path(tmp_path, monkeypatch):
    beside = _command(tmp_path / "beside", "flwr")
    elsewhere = _command(tmp_path / "elsewhere", "flower-superlink")
    _command(tmp_path / "other", "flwr")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "beside" / "python"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'other'}:{tmp_path / 'elsewhere'}")
    assert executable("flwr") == beside
    assert executable("flower-superlink") == elsewhere
    with pytest.raises(FlowerError, match=r"flower-supernode is neither beside .* nor on the PATH"):
        executable("flower-supernode")
    # Flower's own processes look for one another in the same places.
    folders = environment(tmp_path)["PATH"].split(":")
    assert folders == [str(tmp_path / name) for name in ("beside", "other", "elsewhere")]


def test_a_superlink_that_does_not_answer_is_named_in_one_sentence(tmp_path, monkeypatch):
    error = "Using SuperLink: here (127.0.0.1:1) Connection to the SuperLink is unavailable. Please"
    answer = json.dumps({"success": False, "error-message": error})
    path = Path(_command(tmp_path / "bin", "flwr"))
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    monkeypatch.setattr(sys, "executable", str(path.with_name("python")))
    with pytest.raises(FlowerError, match=r"^the SuperLink does not answer; start .* again$"):
        Submission(tmp_path, "here", "1").status()


def test_a_run_whose_process_was_killed_is_told_from_one_that_failed(monkeypatch):
    lost = {"status": "finished:failed", "status-details": "Task failed with unknown error."}
    monkeypatch.setattr(flower_command, "flwr", lambda *_: {"runs": [lost]})
    with pytest.raises(ProcessEndedError, match="the same command goes on after the last"):
        Submission(Path(), "here", "1").wait(lambda: False, print)
