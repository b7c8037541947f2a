"""The server and every client in a network namespace of its own: see namespaces.sh."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Flower's processes wait for each other more than they compute: a few files beside each other.
pytestmark = pytest.mark.flower

SCRIPT = Path(__file__).with_name("namespaces.sh")


def _can_make_namespaces() -> bool:
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None:
        return False
    name = f"fedsim-probe-{os.getpid()}"
    added = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if added.returncode == 0:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return added.returncode == 0


@pytest.mark.slow
def test_a_federation_across_network_namespaces(tmp_path: Path) -> None:
    if not _can_make_namespaces():
        pytest.skip("needs root, ip netns and unshare")
    command = ["bash", str(SCRIPT), str(tmp_path / "session"), str(Path(sys.executable).parent)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    said = result.stdout
    # The clients' own ledgers have come to what the model's card says.
    assert "| the server | sees every client's sum under that client's own noise | 2 |" in said
    assert "epsilon 2 of 2.2 is spent at delta 1e-05" in said
    assert "Accuracy" in said
    assert "class,p(0),p(1)" in said
