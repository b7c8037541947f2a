"""More trials of a run, and changed configurations: what is kept, and what is refused."""

import re
import shutil

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim import client_app, server_app
from fedsim.configuration import dump, to_run_config
from fedsim.federation.runs import batches, ledger
from fedsim.federation.runs.extension import extend
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import preflight
from fedsim.federation.server.strategy import DPSGD
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

    start = DPSGD.start
    monkeypatch.setattr(DPSGD, "start", run_some)


def test_more_trials_leave_the_old_ones_and_the_guarantee_as_they_are(small, tmp_path, monkeypatch):
    directory = RunDirectory.create(tmp_path / "run", small(FEW_ROUNDS | {"trials.batch": 6}))
    before, old = _go(directory)
    files = {path.name: path.read_bytes() for path in (directory.path / "batches").iterdir()}
    extend(directory, 14)
    assert not directory.finished
    assert [list(part) for part in batches.Batches(directory.config, directory).ranges()] == [
        list(range(6)),
        list(range(6, 8)),
        list(range(8, 14)),
    ]
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        _stop_before(patched, 0)
        _go(directory)
    assert directory.read_json("report.json") == old
    assert extend(directory, 14) == directory.config  # the same command after the interruption
    after, new = _go(directory)
    assert directory.finished
    for name in ("worlds", "log_odds", "final_models"):
        np.testing.assert_array_equal(after[name][:8], before[name])
    assert after["worlds"][8:].reshape(3, 2).sum(1).tolist() == [1, 1, 1]
    for name, content in files.items():
        assert (directory.path / "batches" / name).read_bytes() == content
    assert new["budget"]["epsilon"] == old["budget"]["epsilon"]
    assert new["bounds"] == old["bounds"]
    assert {row.batch for row in ledger.verified(directory)} == {0, 6, 8}
    assert (new["trials"], new["extended_from"]) == (14, 8)
    assert any("extended from 8 to 14" in warning for warning in new["warnings"])
    # A typo is taken back, as far as there are trials; until then reports are of those there are.
    extend(directory, 40_000)
    between = report_of(directory)
    assert between.extended_from == 8
    assert any("extended from 8 to 14" in warning for warning in between.warnings)
    with pytest.raises(InputError, match="is to have 40000 trials, and 14 of them"):
        extend(directory, 12)
    assert extend(directory, 14).trials.first == 8
    assert directory.finished
    # Its configuration alone gives the same campaign again.
    scratch, _ = _go(RunDirectory.create(tmp_path / "scratch", directory.config.placed_at("")))
    np.testing.assert_allclose(scratch["log_odds"], after["log_odds"], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(scratch["worlds"], after["worlds"])


def test_more_trials_that_were_never_run_leave_no_trace_when_taken_back(small, tmp_path):
    directory = RunDirectory.create(tmp_path / "run", small(FEW_ROUNDS))
    given = directory.config
    _go(directory)
    assert directory.finished
    extend(directory, 400)
    assert not directory.finished
    assert directory.config.trials.first == 8
    with pytest.raises(InputError, match="at least 8"):
        extend(directory, 6)
    extend(directory, 8)
    assert directory.config == given
    assert directory.finished


@pytest.mark.parametrize(("trials", "complaint"), [(8, "8 trials already"), (11, "even number")])
def test_an_impossible_extension_is_refused(trials, complaint, small, tmp_path):
    directory = RunDirectory.create(tmp_path / "run", small(FEW_ROUNDS))
    _go(directory)
    before = (directory.path / "config.toml").read_bytes()
    with pytest.raises(InputError, match=complaint):
        extend(directory, trials)
    assert (directory.path / "config.toml").read_bytes() == before


def test_a_single_training_is_not_extended(small, tmp_path):
    directory = RunDirectory.create(tmp_path / "run", small(FEW_ROUNDS | {"trials.count": 1}))
    with pytest.raises(InputError, match="is a single training, on D"):
        extend(directory, 8)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"trials.first": 10}, "trials.first is 10 and trials.count is 8"),
        ({"trials.first": 3}, "trials.first is 3 and trials.count is 8"),
    ],
)
def test_designs_that_make_no_sense_are_refused(changes, complaint, small):
    with pytest.raises(InputError, match=complaint):
        small(FEW_ROUNDS | changes)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"privacy.rho-beta": 0.6}, "privacy.rho-beta = 0.9, but it now says 0.6"),
        ({"training.rounds": 5}, "training.rounds = 2, but it now says 5"),
        ({"run.seed": 5}, "run.seed = 0, but it now says 5"),
        ({"trials.count": 14}, "trials.count = 8, but it now says 14"),
    ],
)
def test_no_report_is_of_two_experiments(changes, named, small, tmp_path):
    """Whoever edits the configuration of a run that has batches of trials is told what was
    there."""
    start = FEW_ROUNDS | {"privacy.rho-beta": 0.9}
    directory = RunDirectory.create(tmp_path / "run", small(start))
    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        _stop_before(patched, 1)
        _go(directory)
    directory.write_text("config.toml", dump(small(start | changes)))
    with pytest.raises(InputError, match=re.escape(named)):
        _go(directory)
    # What no trial depends on may change.
    harmless = {
        "audit.confidence": 0.99,
        "trials.batch": 2,
        "run.name": "again",
    }
    directory.write_text("config.toml", dump(small(start | harmless)))
    assert len(_go(directory)[0]["worlds"]) == 8


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"trials.count": 20}, "trials.count = 8, but it now says 20"),
        ({"privacy.stop-at": 50.0}, "privacy.stop-at = 0.0, but it now says 50.0"),
    ],
)
def test_a_finished_transcript_is_read_by_the_configuration_of_its_run(
    changes, named, small, tmp_path
):
    directory = RunDirectory.create(tmp_path / "run", small(FEW_ROUNDS))
    _go(directory)
    report = (directory.path / "report.json").read_bytes()
    directory.write_text("config.toml", dump(small(FEW_ROUNDS | changes)))
    with pytest.raises(InputError, match=re.escape(named)):
        report_of(directory)
    assert (directory.path / "report.json").read_bytes() == report


@pytest.mark.parametrize("told", [b"{", b"[]", b"7", b"\xff"])
def test_a_batch_whose_experiment_is_unreadable_is_damaged(told, small, tmp_path):
    directory = RunDirectory.create(tmp_path / "run", small(FEW_ROUNDS))
    _go(directory)
    found = directory.read_arrays(directory.batch_file(0))
    found[batches.EXPERIMENT] = np.frombuffer(told, dtype=np.uint8)
    directory.write_arrays(directory.batch_file(0), found)
    with pytest.raises(InputError, match=r"batches/000000.npz in .* is damaged"):
        report_of(directory)


def test_a_file_that_is_not_this_batches_of_this_run_is_refused(small, tmp_path):
    """Two runs of one configuration differ where the noise is the system's."""
    config = small(FEW_ROUNDS | {"privacy.noise-source": "system"})
    run, other = (RunDirectory.create(tmp_path / name, config) for name in ("run", "other"))
    for directory in (run, other):
        _go(directory)
    file = run.path / run.batch_file(4)
    whole = file.read_bytes()
    for lay, complaint in (
        (lambda: shutil.copy(run.path / run.batch_file(0), file), "it holds trials 0 to"),
        (lambda: shutil.copy(other.path / other.batch_file(4), file), "belongs to another run"),
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
    with pytest.raises(InputError, match=r"transcript.npz in .* belongs to another run"):
        report_of(run)
