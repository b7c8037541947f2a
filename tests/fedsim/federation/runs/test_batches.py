"""Changed configurations and files of a run: what is kept, and what is refused."""

import shutil

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim import client_app, server_app
from fedsim.configuration import to_run_config
from fedsim.configuration.files import dump
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import preflight
from fedsim.federation.server.training import Training
from fedsim.reports import page as report
from fedsim.reports.page import write_report as report_of

FEW_ROUNDS = {"training.rounds": 2, "trials.batch": 4, "trials.count": 8}


@pytest.fixture(autouse=True)
def _without_pages(monkeypatch):
    """Leave out what takes longer than the federation: every run here would draw its figures."""
    monkeypatch.setattr(report, "write_figures", lambda *_: [])
    monkeypatch.setattr(report, "render_html", lambda *_: "")


def _go(directory):
    config = directory.config
    grid = InProcessGrid(client_app.app, config.federation.clients, to_run_config(config))
    server_app.carry_out(grid, preflight(config), directory)
    return directory.read_arrays("transcript.npz"), directory.read_json("report.json")


def _stop_before(monkeypatch, batches):
    """Kill the process, as it were, where it would begin this batch of those that it runs."""
    begun = []

    def run_some(*arguments, **options):
        if len(begun) == batches:
            raise KeyboardInterrupt
        begun.append(arguments)
        return start(*arguments, **options)

    start = Training.run
    monkeypatch.setattr(Training, "run", run_some)


@pytest.mark.parametrize("changes", [{"privacy.rho-beta": 0.6}, {"trials.count": 14}])
def test_no_report_is_of_two_experiments(changes, small, tmp_path):
    start = FEW_ROUNDS | {"privacy.rho-beta": 0.9}
    directory = RunDirectory.create(tmp_path / "run", small(start))
    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        _stop_before(patched, 1)
        _go(directory)
    directory.write_text("config.toml", dump(small(start | changes)))
    with pytest.raises(InputError, match="it is not of trials 0 to 3 of this run"):
        _go(directory)
    # What no trial depends on may change.
    harmless = {"audit.confidence": 0.99, "trials.batch": 2, "run.name": "again"}
    directory.write_text("config.toml", dump(small(start | harmless)))
    assert len(_go(directory)[0]["worlds"]) == 8


@pytest.mark.parametrize("changes", [{"trials.count": 20}, {"privacy.stop-at": 50.0}])
def test_a_finished_transcript_is_read_by_the_configuration_of_its_run(changes, small, tmp_path):
    directory = RunDirectory.create(tmp_path / "run", small(FEW_ROUNDS))
    _go(directory)
    report = (directory.path / "report.json").read_bytes()
    directory.write_text("config.toml", dump(small(FEW_ROUNDS | changes)))
    with pytest.raises(InputError, match="it is not of trials 0 to 7 of this run"):
        report_of(directory)
    assert (directory.path / "report.json").read_bytes() == report


def test_a_file_that_is_not_this_batches_of_this_run_is_refused(small, tmp_path):
    """Two runs of one configuration differ where the noise is the system's."""
    config = small(FEW_ROUNDS | {"privacy.noise-source": "system"})
    run, other = (RunDirectory.create(tmp_path / name, config) for name in ("run", "other"))
    for directory in (run, other):
        _go(directory)
    file = run.path / run.batch_file(4)
    whole = file.read_bytes()
    for lay, complaint in (
        (lambda: shutil.copy(run.path / run.batch_file(0), file), "it is not of trials 4 to 7"),
        (lambda: shutil.copy(other.path / other.batch_file(4), file), "it is not of trials 4 to 7"),
        (lambda: np.savez(file, worlds=[True]), "it has no 'experiment'"),
        (lambda: np.savez(file, worlds=[], experiment=[1]), "it has no trials"),
        (lambda: np.savez(file, worlds=1, experiment=1), "is damaged"),
    ):
        lay()
        for use in (report_of, _go):
            with pytest.raises(InputError, match=f"batches/000004.npz in .*{complaint}.*; delete"):
                use(run)
    file.write_bytes(whole)
    shutil.copy(other.path / "transcript.npz", run.path)
    with pytest.raises(InputError, match=r"transcript.npz in .* is not of trials 0 to 7"):
        report_of(run)
