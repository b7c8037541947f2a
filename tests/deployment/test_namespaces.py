"""The server and every client in a network namespace of its own: see namespaces.sh."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedsim.federation.client import training_node

# Flower's processes wait for each other more than they compute: a few files beside each other.
pytestmark = pytest.mark.flower

SCRIPT = Path(__file__).with_name("namespaces.sh")


def _can_make_namespaces():
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None:
        return False
    name = f"fedsim-probe-{os.getpid()}"
    added = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if added.returncode == 0:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return added.returncode == 0


@pytest.mark.slow
def test_a_federation_across_network_namespaces(tmp_path):
    if not _can_make_namespaces():
        pytest.skip("needs root, ip netns and unshare")
    command = ["bash", str(SCRIPT), str(tmp_path / "session"), str(Path(sys.executable).parent)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    said = result.stdout
    honest, _, faulty = said.partition("# Handwritten digits.")
    # The model's card, the account of the run, the client's own ledger and report agree.
    assert "sees every client's sum with that client's own noise in it | 6.000 |" in honest
    assert re.search(r"local +server +\S+ +6 ", honest)
    assert "epsilon 6 of 16 is spent at delta 1e-05" in honest
    plain = " ".join(honest.split())
    assert "cost each of its records epsilon 6.000, of a budget of 16, at delta 1e-05" in plain
    assert "AUC is 0." in honest
    # The auditor has the canaries' signal, with what the noise allows.
    assert "class,p(benign),p(malignant)" in honest
    # The auditor acquits the honest ones, and names who halves its noise.
    assert "The claim of epsilon 6.001 at delta 1e-05 is supported." in honest
    assert "ALARM" not in honest
    assert "ALARM: The messages of client-1 have less than 0." in faulty
    assert not re.search(r"ALARM: The messages of client-[02]", faulty)
    # The server was killed once, the third client twice: the interrupted round is no new attempt.
    assert " attempts." not in faulty
    assert faulty.count("kill -9 on client-2") == 2
    assert "torch.Size([1, 10])" in faulty


def test_the_tampering_halves_a_function_that_the_client_has():
    names = set(re.findall(r"module\.(_\w+)", (SCRIPT.parent / "half_noise.py").read_text("utf-8")))
    assert names
    assert all(callable(getattr(training_node, name)) for name in names)
