"""A deployment whose SuperLink or SuperNode is killed, or whose node lies: see faults.sh."""

import subprocess
import sys
from pathlib import Path

import pytest

# Flower's processes wait for each other more than they compute: a few files beside each other.
# Minutes each: before a release. CI has the session across namespaces, and these faults in process.
pytestmark = [pytest.mark.flower, pytest.mark.long]

SCRIPT = Path(__file__).with_name("faults.sh")


def _session(tmp_path, part):
    command = ["bash", str(SCRIPT), str(tmp_path / "session"), str(Path(sys.executable).parent)]
    result = subprocess.run([*command, part], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.slow
def test_a_run_whose_superlink_was_killed_ends_as_if_it_had_not_been(tmp_path):
    said = _session(tmp_path, "superlink")
    assert "(exit status 1)" in said
    assert "the same report" in said


@pytest.mark.slow
def test_a_run_goes_on_without_a_client_whose_supernode_was_killed(tmp_path):
    said = _session(tmp_path, "supernode")
    assert "(exit status 0)" in said
    assert "Node Unavailable" in said
    assert '"participants": 2' in said


@pytest.mark.slow
def test_a_client_that_claims_the_partition_of_another_is_refused(tmp_path):
    said = _session(tmp_path, "partition")
    assert "(exit status 1)" in said
    assert "give it the partition-id of its own key" in said
