"""`--fail-if`: a change that halves the noise turns a pipeline red, and a doubt does too."""

import shlex
import shutil
import subprocess
import sys
from unittest.mock import patch

import pytest

from fedsim.commands.answer import Answer
from fedsim.common.randomness import gaussian_noise
from fedsim.privacy import noise
from tests.console import refusal

GATE = (
    *("--fail-if", "advantage.low > .32", "--fail-if", "epsilon > 2.3", "--fail-if", "alarms > 0"),
    *("audit.confidence=0.99", "trials.batch=300", "training.rounds=2"),
    *("trials.count=300", "--quiet"),
)
"""The noise that belief .9 allows has epsilon 2.2, and leaves nobody more advantage than .31."""


@pytest.mark.usefixtures("without_pages")
def test_the_gate_is_open_for_the_noise_and_shut_for_half_of_it(fedsim, experiment, tmp_path):
    status, _, said = fedsim("run", experiment, "--out", tmp_path / "honest", *GATE)
    assert (status, said) == (0, "")
    # In the configuration: theory tells at once, and what is measured agrees.
    multiplier = _multiplier(tmp_path / "honest") / 2
    halved = f"privacy.noise-multiplier={multiplier}"
    status, _, said = fedsim("run", experiment, "--out", tmp_path / "half", *GATE, halved)
    assert status == 3
    assert ["advantage.low" in said, "epsilon" in said, "alarms" in said] == [True, True, False]
    # In the code that adds it: theory knows nothing of that, but it is seen.
    with patch.object(noise, "gaussian_noise", lambda *stream: gaussian_noise(*stream) / 2):
        status, _, said = fedsim("run", experiment, "--out", tmp_path / "mutant", *GATE)
    assert status == 4
    assert ["advantage.low" in said, "epsilon" in said, "alarms" in said] == [True, False, True]
    *shut, last = said.splitlines()
    assert all(line.startswith("Gate shut: ") for line in shut)
    assert last.startswith("fedsim: ")


def _multiplier(run):
    from fedsim.federation.runs.run_directory import RunDirectory  # noqa: PLC0415

    return float(RunDirectory.open(run).read_facts()["noise_multiplier"])


@pytest.mark.usefixtures("without_pages")
def test_a_report_is_held_to_other_conditions_later(fedsim, experiment, tmp_path):
    run = tmp_path / "run"
    assert fedsim("run", experiment, "--out", run, "--quiet", "--fail-if", "alarms > 3")[0] == 0
    other = shutil.copytree(run, tmp_path / "other")
    assert "of one run" in refusal(f"report {run} {other} --fail-if 'alarms > 0'")
    status, _, said = fedsim("report", run, "--fail-if", "alarms >= 0", "--fail-if", "missed > 0")
    assert status == 3
    assert "Gate shut: alarms >= 0: it is 0\n" in said
    assert "Gate shut: cannot tell whether missed > 0: it was not measured" in said


@pytest.mark.parametrize(
    ("found", "shut", "status"), [(0, False, 0), (0, True, 3), (3, False, 3), (4, True, 4)]
)
def test_of_an_answer_and_its_gate_the_larger_status_counts(
    found, shut, status, fedsim, monkeypatch
):
    report = {"kind": "training", "alarms": 1 if shut else 0}
    answer = Answer(report=report, status=found)
    monkeypatch.setattr("fedsim.commands.run.train", lambda config, /: answer)
    assert fedsim("train", "x", "--fail-if", "alarms > 0")[0] == status


def test_a_transcript_that_cannot_be_read_is_bad_input(fedsim, tmp_path):
    (tmp_path / "bad.fedt").write_bytes(b"what is this, and why is it here?")
    status, _, err = fedsim("audit", tmp_path, "--follow", "--fail-if", "alarms > 0")
    assert (status, "not a fedsim transcript" in err) == (2, True)


def test_an_answer_outlives_a_reader_that_leaves(tmp_path):
    """The status is that of the answer, and not that of the pipe."""
    command = [sys.executable, "-m", "fedsim", "config", "nosuchkey"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2
    for options in ([], ["--json"]):
        words = shlex.join([sys.executable, "-m", "fedsim", "config", *options])
        piped = f"set -o pipefail; {words} | true"
        assert subprocess.run(["bash", "-c", piped], check=False).returncode == 0
