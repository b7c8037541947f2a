"""NVFlare's hello-world in its own simulator, with a recorded privacy filter at every site."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedsim.audits.judgement.claim import Claim
from fedsim.audits.judgement.report import AuditOptions
from fedsim.audits.recorded.audit import audit
from fedsim.federation.transcripts.reader import read_transcript

pytest.importorskip("nvflare", reason="nvflare is not installed")

JOB = Path(__file__).parents[3] / "apps" / "nvflare_app" / "job.py"
ROUNDS, DELTA = 5, 1e-5

CLAIMS = {
    # What SVTPrivacy is given, and what its own ledger comes to.
    1: (0.1, "convicted"),
    2: (8.0, "convicted"),
    # 650 numbers a round are too few to tell a share of the update within 10 %.
    3: (8.0, "not judged"),
    # Five rounds at a noise multiplier of 2 are 4.96.
    4: (5.0, "supported"),
    5: (5.0, "convicted"),
}


@pytest.mark.slow
def test_every_filter_of_a_simulated_job_is_judged_by_what_it_did(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, JOB, tmp_path], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    reports = {}
    for site, (claimed, verdict) in CLAIMS.items():
        transcript = read_transcript(tmp_path / f"site-{site}.fedt")
        assert (transcript.facts.node, transcript.facts.run) == (site, "simulate_job")
        assert [observed.round for observed in transcript.rounds] == [*range(ROUNDS)]
        reports[site] = report = audit(
            transcript, AuditOptions(claim=Claim(claimed, DELTA), rounds=ROUNDS)
        ).as_json()
        assert report["claim"]["verdict"] == verdict, report["findings"]
    svt, share = reports[1]["filtered"], reports[3]["filtered"]
    # 0.1 for the choice and 0.1 for each of 65 numbers, a round.
    assert svt["ledger_epsilon"] == pytest.approx(ROUNDS * (0.1 + 0.1 * 65))
    for filtered in (svt, share):
        assert filtered["rounds"] == ROUNDS
        # Of 325 numbers, and of 3250: 4.5 and 20 standard deviations.
        assert filtered["scale_over_configured"]["point"] == pytest.approx(1, abs=0.25)
    noise = {site: reports[site]["release"]["noise_multiplier"]["point"] for site in (4, 5)}
    assert noise == pytest.approx({4: 2.0, 5: 1.0}, rel=0.07)
