"""A federation small enough to run in a test, and a way to run it."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

# Before torch is imported: tests that run beside each other share the cores.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

from fedsim import client_app, server_app
from fedsim.config import Config, Scalar, from_run_config, to_run_config
from fedsim.federation.runs.run_directory import Arrays
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import prepare

# A job in the background of a shell ignores Ctrl-C, and so would the processes that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run, so that a failure is of the change; others: HYPOTHESIS_PROFILE=new
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("new", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

SMALL: dict[str, Scalar] = {
    "data.records": 24,
    "data.held-out": 20,
    "data.pool": 30,
    "federation.clients": 3,
    "model.name": "linear",
    "training.rounds": 3,
    "training.learning-rate": 0.5,
    "trials.count": 8,
    "trials.batch": 8,
    "privacy.delta": 0.005,
    "audit.evaluated-trials": 4,
    "run.threads": 1,
    "run.device": "cpu",
}


@pytest.fixture(autouse=True)
def _without_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the figures of runs, most of the time of a small one, but where they are tested."""
    if request.node.get_closest_marker("figures") is None:
        monkeypatch.setattr("fedsim.report.page.Pictures.drawn", {})


@pytest.fixture
def small() -> Callable[..., Config]:
    """Return a function that makes a small configuration with some keys changed."""

    def make(changes: dict[str, Scalar] | None = None) -> Config:
        return from_run_config(SMALL | (changes or {}))

    return make


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Config], Arrays]:
    """Return a function that runs a configuration in process and returns its transcript."""
    runs = iter(range(100))

    def execute(config: Config) -> Arrays:
        plan = prepare(config.placed_at(str(tmp_path / f"run-{next(runs)}")))
        directory = plan.begin()
        run_config = to_run_config(plan.config)
        grid = InProcessGrid(client_app.app, config.federation.clients, run_config)
        server_app.carry_out(grid, plan, directory)
        return directory.read_arrays("transcript.npz")

    return execute
