"""Flower's commands are found where environments keep them."""

import sys
from pathlib import Path

import pytest

from fedsim.runtimes.flower_command import FlowerError, environment, executable


def _command(folder: Path, name: str) -> str:
    folder.mkdir()
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o700)
    return str(path)


def test_commands_are_found_beside_python_or_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
