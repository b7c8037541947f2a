"""A kit on this machine, and what is wrong with it."""

import os
import socket
import sys
from pathlib import Path

import pytest

from fedsim.deployment import check, kit
from fedsim.deployment.check import WRONG


@pytest.fixture
def free_port():
    """Return a function that gives a port where nothing listens."""

    def free():
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    return free


@pytest.fixture
def change():
    """Return a function that changes a setting in the settings.env of a machine's folder."""

    def change(place, name, value):
        path = place / "settings.env"
        lines = path.read_text().splitlines()
        kept = [f"{name}={value}" if line.startswith(f"{name}=") else line for line in lines]
        path.write_text("\n".join(kept) + "\n")

    return change


@pytest.fixture
def written(tmp_path, monkeypatch, free_port, change):
    """A kit on ports where nothing listens, in an environment with fedsim's commands."""
    commands = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    directory = tmp_path / "kit"
    kit.write_kit(directory, "127.0.0.1", free_port(), 2, superlink_port=free_port())
    for client in range(2):
        change(directory / "clients" / f"client-{client}", "NODE_PORT", free_port())
    return directory


@pytest.fixture
def found(written):
    """Return a function that gives what is wrong with a machine, by what was looked at."""

    def wrong(machine):
        findings = [one for one in check.check_machines(written, machine) if one.machine == machine]
        return {one.what: one.message for one in findings if one.state == WRONG}

    return wrong
