"""One preflight: however an experiment is started, its noise multiplier is searched for once."""

import pytest

from fedsim import client_app, server_app
from fedsim.configuration import to_run_config
from fedsim.configuration.files import dump
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import prepare
from fedsim.privacy import calibration

SHORT = {"training.rounds": 1, "trials.count": 2}
INTEGERS = {"federation.trust": "distributed"}
"""Whose rounding is checked against the noise."""


@pytest.fixture
def searches(monkeypatch):
    """What the noise multiplier was searched for, one entry for each search."""
    found = []
    search = calibration.least_multiplier

    def counted(*arguments):
        found.append(arguments)
        return search(*arguments)

    monkeypatch.setattr(calibration, "least_multiplier", counted)
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("without_pages")
def test_a_run_searches_once(fedsim, small, tmp_path, searches):
    experiment = tmp_path / "short.toml"
    experiment.write_text(dump(small(SHORT | INTEGERS)))
    assert fedsim("run", experiment, "--out", tmp_path / "run", "--quiet")[0] == 0
    assert len(searches) == 1


@pytest.mark.usefixtures("without_pages")
def test_flwr_run_makes_the_same_plan_once(small, tmp_path, searches):
    config = small(SHORT | {"run.out": str(tmp_path / "run")})
    expected = prepare(config)
    searches.clear()
    grid = InProcessGrid(client_app.app, config.federation.clients, to_run_config(config))
    server_app.app(grid, next(iter(grid.contexts.values())))
    assert len(searches) == 1
    assert prepare(config) == expected


@pytest.mark.usefixtures("without_pages")
def test_a_delta_that_nobody_gives_is_said(fedsim, experiment, tmp_path):
    few = ("trials.count=4", "training.rounds=1", "privacy.delta=0")
    status, _, err = fedsim("run", experiment, *few, "--out", tmp_path / "run")
    assert status == 0
    assert "δ = 0.00417, 1/(10·24) for 24 records (privacy.delta)" in err.splitlines()
