"""A federation small enough to run in a test, and a way to run it."""

from __future__ import annotations

import gc
import os
import signal
from typing import TYPE_CHECKING, Protocol
from unittest.mock import patch

# Before torch is imported: tests that run beside each other share the cores.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

# What computes is imported where it is used: a process that hands out tests to others does without.
from fedsim.configuration import from_run_config, to_run_config

if TYPE_CHECKING:
    pass

# A job in the background of a shell ignores Ctrl-C, and so would the processes that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run, so that a failure is of the change; others: HYPOTHESIS_PROFILE=new
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("new", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

SMALL = {
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


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Search a million imported objects for garbage once, and not again during the tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


INNER = (
    *("adversaries/", "mutations/", "test_golden.py", "test_client_charges.py"),
    *("fedsim/common/", "fedsim/configuration/", "fedsim/game/", "fedsim/learning/"),
    *("fedsim/privacy/", "fedsim/test_faults.py", "fedsim/test_verdict_table.py"),
    *(f"fedsim/federation/{each}/" for each in ("client", "protocol", "runs", "server")),
    *("fedsim/federation/transcripts/",),
    *(f"fedsim/audits/{each}/" for each in ("judgement", "measurements", "recorded", "results")),
    "fedsim/audits/run/",
)
"""Tests of guarantees and of mathematics. The others, which protect wording, pages, exit statuses
and processes, are marked `outer`, and so are all parameters of a test but the first."""

QUICK = "not slow and not browser"
"""Expression of the default run in pyproject.toml."""


def pytest_configure(config):
    """Leave out the outer tests of a run that names no tests and no marks."""
    whole = config.args_source is config.ArgsSource.TESTPATHS
    if whole and config.option.markexpr == QUICK:
        config.option.markexpr = f"{QUICK} and not outer"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    seen = set()
    for item in items:
        place, test = item.nodeid.partition("tests/")[2], item.nodeid.partition("[")[0]
        if not place.startswith(INNER) or test in seen:
            item.add_marker("outer")
        if test in seen:
            item.add_marker("repeated")
        seen.add(test)


def pytest_addoption(parser):
    parser.addoption("--golden", action="store_true", help="write the golden values anew")


@pytest.fixture
def played(request, tmp_path_factory):
    """Return a kind of the corpus, named by the parameter `name`, that is played once a session.

    Its folder is read-only: a test copies what it changes.
    """
    from filelock import FileLock  # noqa: PLC0415

    from .corpus import KINDS, opened, play  # noqa: PLC0415

    kind = KINDS[request.getfixturevalue("name")]
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "corpus" / kind.name
    folder.parent.mkdir(exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if folder.exists():
            return opened(kind, folder)
        play(kind, folder)
        for path in folder.rglob("*"):
            path.chmod(path.stat().st_mode & 0o555)
        return opened(kind, folder)


@pytest.fixture(autouse=True)
def _without_figures(request, monkeypatch):
    """Leave out the figures of runs, most of the time of a small one, but where they are tested."""
    if request.node.get_closest_marker("figures") is None:
        monkeypatch.setattr("fedsim.reports.page.Pictures.drawn", {})


@pytest.fixture(scope="session")
def small():
    """Return a function that makes a small configuration with some keys changed."""

    def make(changes=None):
        return from_run_config(SMALL | (changes or {}))

    return make


class Run(Protocol):
    """Runs a configuration in process and returns its transcript; `reported` with a report."""

    def __call__(self, config, reported=...): ...


@pytest.fixture
def run(request, tmp_path):
    """Return a function that runs a configuration and returns its transcript.

    A report takes twice as long as the federation. The first run of a test's first parameters
    writes one; the others, and those of slow tests, only where asked.
    """
    from fedsim import client_app, server_app  # noqa: PLC0415
    from fedsim.federation.runtimes.inprocess import InProcessGrid  # noqa: PLC0415
    from fedsim.federation.server.plan import prepare  # noqa: PLC0415

    runs, marks = iter(range(100)), {mark.name for mark in request.node.iter_markers()}

    def execute(config, reported=False):
        number = next(runs)
        plan = prepare(config.placed_at(str(tmp_path / f"run-{number}")))
        directory = plan.begin()
        run_config = to_run_config(plan.config)
        grid = InProcessGrid(client_app.app, config.federation.clients, run_config)
        if (number == 0 and not marks & {"slow", "repeated"}) or reported:
            server_app.carry_out(grid, plan, directory)
        else:
            with patch("fedsim.reports.page.write_report"):
                server_app.carry_out(grid, plan, directory)
        return directory.read_arrays("transcript.npz")

    return execute
