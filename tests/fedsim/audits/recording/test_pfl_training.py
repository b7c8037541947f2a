"""pfl's own training loop, recorded in one line: who was in its cohorts decides what holds."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adversaries.statistics import gaussian
from fedsim.audits.judgement.claim import Claim
from fedsim.audits.judgement.report import AuditOptions
from fedsim.audits.recorded.audit import audit
from fedsim.federation.transcripts.reader import read_transcript

pytest.importorskip("pfl", reason="pfl is not installed")

TRAINING = Path(__file__).parents[3] / "apps" / "pfl_app" / "train.py"
USERS, STEPS, EPSILON, DELTA = 360, 20, 2.0, 1e-5


def _trained(path: Path, sampler: str) -> dict[float, dict[str, Any]]:
    """Train, and return the reports of the accountant's epsilon and of a larger one."""
    command = [sys.executable, "-W", "ignore", TRAINING, path, sampler]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return {
        claim: audit(read_transcript(path), AuditOptions(claim=Claim(claim, DELTA))).as_json()
        for claim in (EPSILON, 4.5)
    }


@pytest.mark.slow
def test_users_who_are_in_one_cohort_each_have_the_epsilon_of_one_step(tmp_path: Path) -> None:
    path = tmp_path / "steps.fedt"
    reports = _trained(path, "minimize_reuse")
    members = [
        member for step in read_transcript(path).rounds for member in step.participants or ()
    ]
    assert sorted(members) == [*range(USERS)]
    release = reports[EPSILON]["release"]
    assert release["noise"] == "as claimed"
    assert release["accountants"]["last_word"] == pytest.approx(EPSILON, rel=0.01)
    once = gaussian.epsilon(1 / release["claimed_noise_multiplier"], DELTA)
    assert release["proven"]["epsilon_at_most"] == pytest.approx(once, rel=1e-6)
    # The accountant counts on Poisson sampling, which there is not.
    verdicts = {claim: report["claim"]["verdict"] for claim, report in reports.items()}
    assert verdicts == {EPSILON: "suspect", 4.5: "supported"}


@pytest.mark.slow
def test_users_drawn_with_replacement_are_in_one_cohort_twice(tmp_path: Path) -> None:
    report = _trained(tmp_path / "steps.fedt", "random")[4.5]
    assert report["claim"]["verdict"] == "suspect"
    assert "twice in one step" in " ".join(one["why"] for one in report["findings"])
