"""Pairs, stopping and more trials in a federation: what is shared, what is kept, what is said."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from flwr.serverapp.strategy import Result

from adversaries.errors import InputError
from adversaries.statistics.stopping import interim_analyses
from fedsim import client_app, server_app
from fedsim.audits.results.report import decode
from fedsim.audits.run import audited_run
from fedsim.config import Config, Scalar, dump, to_run_config
from fedsim.federation.runs import batches, ledger, precision
from fedsim.federation.runs.extension import extend
from fedsim.federation.runs.run_directory import Arrays, RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import preflight
from fedsim.federation.server.strategy import DPSGD
from fedsim.game import challenge
from fedsim.report import page as report
from fedsim.report.page import write_report as report_of
from fedsim.report.sections import beliefs

Make = Callable[[dict[str, Scalar]], Config]

FEW_ROUNDS: dict[str, Scalar] = {"training.rounds": 2, "trials.batch": 4, "trials.count": 8}


@pytest.fixture(autouse=True)
def _without_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what takes longer than the federation: every run here would draw its figures."""
    monkeypatch.setattr(report, "write_figures", lambda *_: [])
    monkeypatch.setattr(report, "render_html", lambda *_: "")


def _go(directory: RunDirectory) -> tuple[Arrays, dict[str, Any]]:
    config = directory.config
    grid = InProcessGrid(client_app.app, config.federation.clients, to_run_config(config))
    server_app.carry_out(grid, preflight(config), directory)
    return directory.read_arrays("transcript.npz"), directory.read_json("report.json")


def _stop_before(monkeypatch: pytest.MonkeyPatch, batches: int) -> None:
    """Kill the process, as it were, where it would begin this batch of those that it runs."""
    begun = []

    def run_some(*arguments: object, **options: object) -> Result:
        if len(begun) == batches:
            raise KeyboardInterrupt
        begun.append(arguments)
        return start(*arguments, **options)  # type: ignore[arg-type]

    start = DPSGD.start
    monkeypatch.setattr(DPSGD, "start", run_some)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"training.sampling-rate": 0.5},
        {"federation.trust": "local", "federation.vantage": "released-model"},
    ],
    ids=["full batch", "sampled", "released model of local trust"],
)
def test_the_trials_of_a_pair_share_everything_but_the_world(
    changes: dict[str, Scalar], small: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(FEW_ROUNDS | {"trials.pairing": "common"} | changes)
    first, found = _go(RunDirectory.create(tmp_path / "first", config))
    worlds = first["worlds"]
    assert (worlds[::2] != worlds[1::2]).all()
    # In the other order of worlds the other trial of each pair is the one on D.
    monkeypatch.setattr(challenge, "worlds", lambda *_: ~worlds)
    other, _ = _go(RunDirectory.create(tmp_path / "other", config))
    for name in ("log_odds", "sensitivities"):
        swapped = other[name].reshape(4, 2, -1)[:, ::-1]
        # The rows of a product stand in another order, and round otherwise.
        np.testing.assert_allclose(first[name].reshape(4, 2, -1), swapped, rtol=1e-5, atol=1e-6)
    assert found["campaign"]["pairing"] == "common"
    assert "independent unit" in found["campaign"]["validity"]
    gaussian = found["empirical"]["lower_bounds"]["gaussian"]
    assert gaussian["epsilon"] == 0
    assert gaussian["reason"]
    (listing,) = beliefs.PRECISION.words(decode(found))
    page = dict(listing.entries)
    assert page["Trials"] == "8 of 8 planned"
    assert page["Random numbers of the two worlds"] == "common"
    assert page["Why the run stopped there"] == "all 8 trials were run"


def test_common_random_numbers_reduce_the_variance_as_predicted() -> None:
    random = np.random.default_rng(5)
    for mu in (0.2, 1.0, 2.0):
        shared = random.standard_normal(200_000)
        scores = np.sign(mu / 2 + shared) + np.sign(mu / 2 - shared)
        alone = np.sign(mu / 2 + random.standard_normal((2, 200_000))).sum(0)
        assert scores.mean() == pytest.approx(alone.mean(), abs=0.02)
        predicted = audited_run.variance_ratio(scores.mean() / 2)
        assert scores.var() / alone.var() == pytest.approx(predicted, rel=0.03)
    assert audited_run.variance_ratio(0.0) == 0


def test_a_resumed_run_stops_where_the_uninterrupted_one_does(
    small: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"trials.until-halfwidth": 0.45, "trials.count": 60, "privacy.rho-beta": 0.99}
    config = small(FEW_ROUNDS | changes)
    whole, found = _go(RunDirectory.create(tmp_path / "whole", config))
    trials = found["campaign"]["trials"]
    assert trials < 60
    assert trials in interim_analyses(0.45, 0.95, 60, 4, False)
    assert found["campaign"]["halfwidth"] <= 0.45
    assert f"after {trials} trials" in found["campaign"]["reason"]
    assert found["trials"] == len(whole["worlds"]) == trials
    # Whatever the analysis had to pay, all bounds hold with the confidence that was asked for.
    measured = filter(None, (row["empirical"] for row in found["vantages"].values()))
    places = [row["lower_bound"] for row in measured]
    bounds = [*found["empirical"]["lower_bounds"].values(), *places]
    assert {bound["confidence"] for bound in bounds} == {0.95}
    directory = RunDirectory.create(tmp_path / "killed", config)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        _stop_before(patched, 2)
        _go(directory)
    resumed, again = _go(directory)
    np.testing.assert_array_equal(resumed["log_odds"], whole["log_odds"])
    assert again["campaign"] == found["campaign"]
    assert directory.finished
    with pytest.raises(InputError, match="use all of the significance"):
        extend(directory, 80)


def test_trials_that_never_get_precise_enough_end_at_the_maximum(
    small: Make, tmp_path: Path
) -> None:
    config = small(FEW_ROUNDS | {"trials.until-halfwidth": 0.1})
    _, found = _go(RunDirectory.create(tmp_path / "run", config))
    assert found["campaign"]["trials"] == 8
    assert found["campaign"]["precise"] is False
    assert "but the interval's half-width is still above" in found["campaign"]["reason"]


def test_trials_with_ties_end_at_the_last_look(
    small: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A server without noise of its own knows of a sampled record that took no part: a tie.
    changes: dict[str, Scalar] = {
        "trials.until-halfwidth": 0.45,
        "trials.count": 60,
        "training.sampling-rate": 0.05,
        "federation.vantage": "server",
        "privacy.neighbouring": "replace",
        "privacy.rho-beta": 0.0,
        "privacy.noise-multiplier": 1.0,
    }
    config = small(FEW_ROUNDS | changes)
    planned = interim_analyses(0.45, 0.95, 60, 4, False)
    last = max(planned)
    assert last < 60
    whole, found = _go(RunDirectory.create(tmp_path / "whole", config))
    assert found["empirical"]["ties"] > last / 2
    assert (found["trials"], found["campaign"]["precise"]) == (last, False)
    assert f"{found['empirical']['ties']} trials are ties" in found["campaign"]["reason"]
    assert precision.design(config.trials, config.audit.confidence, last).share == planned[last]
    assert any("not as precise as configured" in warning for warning in found["warnings"])
    directory = RunDirectory.create(tmp_path / "killed", config)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        _stop_before(patched, last // 4 - 1)
        _go(directory)
    resumed, again = _go(directory)
    np.testing.assert_array_equal(resumed["log_odds"], whole["log_odds"])
    assert again["campaign"] == found["campaign"]


def test_a_number_of_trials_that_is_no_look_has_no_share(small: Make) -> None:
    config = small({"trials.until-halfwidth": 0.3, "trials.count": 200, "trials.batch": 20})
    assert precision.interim_analyses(config.trials, config.audit.confidence) == {
        40: 0.25,
        60: 0.75,
    }
    for trials in (20, 200):
        with pytest.raises(InputError, match=f"there are {trials} trials, but interim"):
            precision.design(config.trials, config.audit.confidence, trials)


def test_other_batches_than_the_looks_were_planned_for_are_refused(
    small: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"trials.until-halfwidth": 0.45, "trials.count": 60, "privacy.rho-beta": 0.99}
    config = small(FEW_ROUNDS | changes)
    directory = RunDirectory.create(tmp_path / "run", config)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        _stop_before(patched, 1)
        _go(directory)
    other = config.with_batch(10)
    directory.write_text("config.toml", dump(other.placed_at("")))
    with pytest.raises(
        InputError, match=f"trials.batch = {config.trials.batch}, but it now says 10"
    ):
        _go(RunDirectory.open(directory.path))
    _tell(directory, {"trials.batch": None})
    with pytest.raises(InputError, match=r"is damaged \(it has no 'trials.batch'\)"):
        _go(RunDirectory.open(directory.path))


def _tell(directory: RunDirectory, changes: dict[str, object]) -> None:
    """Change what the first batch's file says of its experiment; None takes a key away."""
    found = directory.read_arrays(directory.batch_file(0))
    told = json.loads(found[batches.EXPERIMENT].tobytes()) | changes
    text = json.dumps({key: value for key, value in told.items() if value is not None})
    found[batches.EXPERIMENT] = np.frombuffer(text.encode(), np.uint8)
    directory.write_arrays(directory.batch_file(0), found)


def test_more_trials_leave_the_old_ones_and_the_guarantee_as_they_are(
    small: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert (new["trials"], new["campaign"]["extended_from"]) == (14, 8)
    assert any("extended from 8 to 14" in warning for warning in new["warnings"])
    # A typo is taken back, as far as there are trials; until then reports are of those there are.
    extend(directory, 40_000)
    between = report_of(directory)
    assert between.campaign.extended_from == 8
    assert any("extended from 8 to 14" in warning for warning in between.warnings)
    with pytest.raises(InputError, match="is to have 40000 trials, and 14 of them"):
        extend(directory, 12)
    assert extend(directory, 14).trials.first == 8
    assert directory.finished
    # Its configuration alone gives the same campaign again.
    scratch, _ = _go(RunDirectory.create(tmp_path / "scratch", directory.config.placed_at("")))
    np.testing.assert_allclose(scratch["log_odds"], after["log_odds"], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(scratch["worlds"], after["worlds"])


def test_more_trials_that_were_never_run_leave_no_trace_when_taken_back(
    small: Make, tmp_path: Path
) -> None:
    directory = RunDirectory.create(tmp_path / "run", small(FEW_ROUNDS))
    given = directory.config
    _go(directory)
    assert directory.finished
    extend(directory, 400)
    assert not directory.finished
    assert audited_run.cautions(directory.config.trials, 8) == []
    with pytest.raises(InputError, match="at least 8"):
        extend(directory, 6)
    extend(directory, 8)
    assert directory.config == given
    assert directory.finished


@pytest.mark.parametrize(("trials", "complaint"), [(8, "8 trials already"), (11, "even number")])
def test_an_impossible_extension_is_refused(
    trials: int, complaint: str, small: Make, tmp_path: Path
) -> None:
    directory = RunDirectory.create(tmp_path / "run", small(FEW_ROUNDS))
    _go(directory)
    before = (directory.path / "config.toml").read_bytes()
    with pytest.raises(InputError, match=complaint):
        extend(directory, trials)
    assert (directory.path / "config.toml").read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"trials.pairing": "common", "trials.worlds": "d-only"}, "d-only"),
        ({"trials.until-halfwidth": 0.1, "trials.worlds": "d-only"}, "d-only"),
        ({"trials.pairing": "common", "trials.batch": 5}, "trials.batch is 5"),
        ({"trials.pairing": "common", "privacy.noise-source": "system"}, "noise-source"),
        ({"trials.first": 10}, "trials.first is 10 and trials.count is 8"),
        ({"trials.first": 3}, "trials.first is 3 and trials.count is 8"),
        ({"trials.until-halfwidth": 1.0}, "until-halfwidth"),
    ],
)
def test_designs_that_make_no_sense_are_refused(
    changes: dict[str, Scalar], complaint: str, small: Make
) -> None:
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
def test_no_report_is_of_two_experiments(
    changes: dict[str, Scalar], named: str, small: Make, tmp_path: Path
) -> None:
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
    harmless: dict[str, Scalar] = {
        "audit.confidence": 0.99,
        "trials.batch": 2,
        "run.name": "again",
    }
    directory.write_text("config.toml", dump(small(start | harmless)))
    assert len(_go(directory)[0]["worlds"]) == 8


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"trials.until-halfwidth": 0.0}, "trials.until-halfwidth = 0.45, but it now says 0.0"),
        ({"trials.count": 80}, "trials.count = 60, but it now says 80"),
        ({"trials.batch": 4}, "trials.batch = 2, but it now says 4"),
        ({"audit.confidence": 0.9}, "audit.confidence = 0.95, but it now says 0.9"),
        ({"privacy.stop-at": 50.0}, "privacy.stop-at = 0.0, but it now says 50.0"),
    ],
)
def test_a_finished_transcript_is_read_by_the_looks_of_its_run(
    changes: dict[str, Scalar], named: str, stopped: RunDirectory, small: Make
) -> None:
    """Analyses planned late would have spent the significance twice."""
    report = (stopped.path / "report.json").read_bytes()
    assert json.loads(report)["campaign"]["precise"] is True
    stopped.write_text("config.toml", dump(small(STOPPING | changes)))
    with pytest.raises(InputError, match=re.escape(named)):
        report_of(stopped)
    assert (stopped.path / "report.json").read_bytes() == report
    if "privacy.stop-at" in changes:
        return  # is in force from now on where a run is continued
    (stopped.path / "report.json").unlink()
    (stopped.path / "transcript.npz").unlink()
    with pytest.raises(InputError, match=re.escape(named)):
        _go(stopped)


@pytest.mark.parametrize("changes", [{"trials.count": 20}, {"trials.count": 14}])
def test_pairs_are_not_chosen_afterwards_either(
    changes: dict[str, Scalar], small: Make, tmp_path: Path
) -> None:
    start = FEW_ROUNDS | {"trials.pairing": "common", "trials.count": 16, "trials.batch": 4}
    directory = RunDirectory.create(tmp_path / "run", small(start))
    _go(directory)
    directory.write_text("config.toml", dump(small(start | changes)))
    for again in (report_of, _go):
        with pytest.raises(InputError, match=r"trials\.count = 16, but it now says"):
            again(directory)


STOPPING: dict[str, Scalar] = {
    "training.rounds": 1,
    "trials.until-halfwidth": 0.45,
    "trials.count": 60,
    "trials.batch": 2,
    "privacy.rho-beta": 0.99,
}


@pytest.fixture(scope="module")
def precise(small: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that stopped when it was precise enough."""
    directory = RunDirectory.create(tmp_path_factory.mktemp("precise") / "run", small(STOPPING))
    with patch("fedsim.report.page.Pictures.drawn", {}):
        _go(directory)
    return directory.path


@pytest.fixture
def stopped(precise: Path, tmp_path: Path) -> RunDirectory:
    """A copy of it."""
    return RunDirectory.open(shutil.copytree(precise, tmp_path / "run"))


@pytest.mark.parametrize("told", [b"{", b"[]", b"7", b"\xff"])
def test_a_batch_whose_experiment_is_unreadable_is_damaged(
    told: bytes, small: Make, tmp_path: Path
) -> None:
    directory = RunDirectory.create(tmp_path / "run", small(FEW_ROUNDS))
    _go(directory)
    found = directory.read_arrays(directory.batch_file(0))
    found[batches.EXPERIMENT] = np.frombuffer(told, dtype=np.uint8)
    directory.write_arrays(directory.batch_file(0), found)
    with pytest.raises(InputError, match=r"batches/000000.npz in .* is damaged"):
        report_of(directory)


def test_a_file_that_is_not_this_batches_of_this_run_is_refused(
    small: Make, tmp_path: Path
) -> None:
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
