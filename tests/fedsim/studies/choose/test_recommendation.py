"""A sweep says which setting to take: the strictest that the trials cannot tell from the best."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedsim import client_app, server_app
from fedsim.audits.results import report as results
from fedsim.audits.results.report import Report
from fedsim.config import from_run_config, to_run_config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import preflight
from fedsim.report.document.blocks import Bars
from fedsim.studies.choose import recommendation
from fedsim.studies.choose.grid import Point, RunOutcome

SMALL = {
    "data.records": 24,
    "data.held-out": 20,
    "data.pool": 30,
    "federation.clients": 3,
    "model.name": "linear",
    "training.rounds": 1,
    "trials.count": 8,
    "audit.attacks": "none",
    "run.threads": 1,
    "run.device": "cpu",
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    config = from_run_config(SMALL)
    directory = RunDirectory.create(tmp_path_factory.mktemp("runs") / "run", config)
    grid = InProcessGrid(client_app.app, config.federation.clients, to_run_config(config))
    server_app.carry_out(grid, preflight(config), directory)
    return results.read(directory)


def outcome(report: Report, rho_alpha: float, accuracies: tuple[float, ...]) -> RunOutcome:
    """Return a setting whose noise allows this advantage; the majority class's share is 0.2."""
    utility = replace(report.utility, majority=0.2)
    limit = replace(report.here.limit, rho_alpha=rho_alpha)
    rows = {**report.rows, report.vantage: replace(report.here, limit=limit)}
    found = replace(report, rows=rows, utility=utility)
    name = f"rho-alpha={rho_alpha}"
    return RunOutcome(Point(name, {"privacy.rho-alpha": rho_alpha}), found, "", accuracies)


GOOD, ALIKE, BAD = (0.80, 0.82, 0.81), (0.79, 0.82, 0.80), (0.5, 0.52, 0.51)


def test_of_settings_that_are_as_accurate_the_strictest_is_taken(report: Report) -> None:
    settings = [
        outcome(report, 0.6, GOOD),
        outcome(report, 0.4, ALIKE),
        outcome(report, 0.1, BAD),
    ]
    taken = recommendation.recommended(settings)
    assert taken is settings[1]
    first, why = recommendation.sentences(settings)
    assert first.startswith("Take rho-alpha = 0.4: the adversary is right in at most 70.0% of all")
    assert "The best is rho-alpha = 0.6, with an accuracy of 81.0%" in why
    assert "right in at most 80.0%" in why


def test_what_has_learnt_nothing_or_contradicts_theory_is_not_taken(report: Report) -> None:
    nothing = outcome(report, 0.1, (0.19, 0.21, 0.2))
    assert recommendation.recommended([nothing]) is None
    assert recommendation.sentences([nothing])[0].startswith("No setting can be recommended")
    good = outcome(report, 0.6, GOOD)
    assert good.report is not None
    alarmed = replace(good, report=replace(good.report, contradictions={"advantage": "too much"}))
    assert recommendation.recommended([alarmed]) is None
    assert recommendation.first([alarmed], ["Yes."], "digits").alarming


def test_the_strictest_setting_stands_first_and_a_failed_one_is_a_failed_check(
    report: Report, tmp_path: Path
) -> None:
    failed = RunOutcome(Point("rho-alpha=0.9", {"privacy.rho-alpha": 0.9}), None, "too long")
    settings = [outcome(report, 0.6, GOOD), failed, outcome(report, 0.4, ALIKE)]
    first = recommendation.first(settings, ["Yes."], "digits")
    assert isinstance(first.figure, Bars)
    assert [bar.limit for bar in first.figure.bars] == [0.7, 0.8]
    marks = {each.text: each.mark.text for each in first.checks}
    assert marks["1 of 3 settings failed."] == "Failed"
