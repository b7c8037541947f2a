"""`--fail-if`: a change that halves the noise turns a pipeline red, and a doubt does too."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from fedsim.audits.judgement.claim import Verdict
from fedsim.audits.judgement.options import AuditOptions
from fedsim.cli import gate
from fedsim.cli.auditing.options import OfEvery
from fedsim.common.randomness import gaussian_noise
from fedsim.privacy import noise

Fedsim = Callable[..., tuple[int, str, str]]

GATE = (
    *("--fail-if", "advantage.low > .32", "--fail-if", "epsilon > 2.3", "--fail-if", "alarms > 0"),
    *("--set", "audit.confidence=0.99", "--set", "trials.batch=300", "--rounds", 2),
    *("--trials", 300, "--quiet"),
)
"""The noise that belief .9 allows has epsilon 2.2, and leaves nobody more advantage than .31."""


@pytest.mark.usefixtures("without_pages")
def test_the_gate_is_open_for_the_noise_and_shut_for_half_of_it(
    fedsim: Fedsim, experiment: Path, tmp_path: Path
) -> None:
    status, _, said = fedsim("run", experiment, "--out", tmp_path / "honest", *GATE)
    assert (status, said) == (0, "")
    # In the configuration: theory tells at once, and what is measured agrees.
    multiplier = _multiplier(tmp_path / "honest") / 2
    halved = "--set", f"privacy.noise-multiplier={multiplier}"
    status, _, said = fedsim("run", experiment, "--out", tmp_path / "half", *GATE, *halved)
    assert status == 3
    assert ["advantage.low" in said, "epsilon" in said, "alarms" in said] == [True, True, False]
    # In the code that adds it: theory knows nothing of that, but it is seen.
    with patch.object(noise, "gaussian_noise", lambda *stream: gaussian_noise(*stream) / 2):
        status, _, said = fedsim("run", experiment, "--out", tmp_path / "mutant", *GATE)
    assert status == 3
    assert ["advantage.low" in said, "epsilon" in said, "alarms" in said] == [True, False, True]
    assert all(line.startswith("Gate shut: ") for line in said.splitlines())


def _multiplier(run: Path) -> float:
    from fedsim.federation.runs.run_directory import RunDirectory  # noqa: PLC0415

    return float(RunDirectory.open(run).read_facts()["noise_multiplier"])


@pytest.mark.usefixtures("without_pages")
def test_a_report_is_held_to_other_conditions_later(
    fedsim: Fedsim, experiment: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert fedsim("run", experiment, "--out", run, "--quiet", "--fail-if", "rows.# > 3")[0] == 0
    status, _, said = fedsim(
        "report", run, "--fail-if", "rows.# >= 3", "--fail-if", "one_run.count > 0"
    )
    assert status == 3
    assert "Gate shut: rows.# >= 3: it is 3\n" in said
    assert "Gate shut: cannot tell whether one_run.count > 0: its 'one_run' is null" in said


def test_nothing_is_run_for_a_condition_that_is_none(
    fedsim: Fedsim, experiment: Path, tmp_path: Path
) -> None:
    status, _, said = fedsim(
        "run", experiment, "--out", tmp_path / "run", "--fail-if", "advantag > 0"
    )
    assert status == 2 and "it has accuracy, advantage, " in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("verdict", "strict", "shut", "status"),
    [
        (Verdict.SUPPORTED, True, False, 0),
        (Verdict.SUPPORTED, True, True, 3),
        (Verdict.NO_CLAIM, False, True, 3),
        (Verdict.NOT_JUDGED, False, False, 3),
        (Verdict.CONVICTED, False, False, 4),
        (Verdict.CONVICTED, False, True, 4),
    ],
)
def test_of_an_audits_verdict_and_its_gate_the_larger_status_counts(
    verdict: Verdict, strict: bool, shut: bool, status: int
) -> None:
    checked = gate.parsed(["epsilon.low > 3"], "app audit")
    every = OfEvery(AuditOptions(), None, False, strict, checked)
    row = {"attack": {"epsilon_at_least": 4.0 if shut else 2.0}}
    report = {"kind": "app audit", "vantage": "server", "rows": {"server": row}}
    found: Any = SimpleNamespace(verdict=verdict, report=report)
    assert every.exit_status(found) == status
