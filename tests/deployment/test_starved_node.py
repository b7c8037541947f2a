"""A node that hardly gets a processor answers each message by one process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.flower, pytest.mark.slow]

SCRIPT = Path(__file__).with_name("starved_node.py")


def _seen(tmp_path, *options):
    command = [sys.executable, str(SCRIPT), str(tmp_path / "federation"), "--rounds", "1"]
    result = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return dict(json.loads(result.stdout))


def test_a_starved_node_starts_one_process_for_a_message(tmp_path):
    # Flower takes a process for dead that has not begun within 30 seconds. This one gets no
    # processor for 40 seconds. The process that sends its heartbeats gets a share.
    stopped = ("--busy", "40", "--nice", "19", "--stop")
    seen = _seen(tmp_path, "--ahead", "2", "--seconds", "300", *stopped)
    assert (seen["rounds"], seen["errors"]) == (1, [])
    assert seen["seconds"][0] > 30, "the node was not starved"
    assert (seen["processes"], seen["at_once"]) == (2, 1)


@pytest.mark.long
def test_a_message_whose_process_was_killed_is_answered_with_an_error_at_once(tmp_path):
    # Flower would hand the task out again, half a minute later.
    seen = _seen(tmp_path, "--busy", "10", "--seconds", "300", "--kill")
    said = "the process that computed the answer was killed by signal 9 (SIGKILL)"
    assert seen["errors"] == [said]
    assert seen["processes"] == 1
    assert seen["seconds"][0] < 30
