"""Files of a run are whole or absent, and nothing in them is pickled."""

import os

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim import client_app, server_app
from fedsim.configuration import to_run_config
from fedsim.configuration.files import load
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import preflight


def test_the_configuration_in_a_run_directory_runs_again(small, tmp_path):
    config = small({"privacy.rho-beta": 0.75})
    RunDirectory.create(tmp_path / "run", config)
    (tmp_path / "run").rename(tmp_path / "moved")
    read = RunDirectory.open(tmp_path / "moved").config
    assert read == config.placed_at(str(tmp_path / "moved"))
    assert load(tmp_path / "moved" / "config.toml").run.out == ""


def test_a_run_is_not_overwritten_by_another(small, tmp_path):
    RunDirectory.create(tmp_path / "run", small())
    RunDirectory.create(tmp_path / "run", small())
    with pytest.raises(InputError, match="another configuration; name a new directory"):
        RunDirectory.create(tmp_path / "run", small({"run.seed": 1}))


def test_a_run_is_nobody_elses_to_read(small, tmp_path):
    directory = RunDirectory.create(tmp_path / "runs" / "run", small())
    assert directory.path.stat().st_mode & 0o777 == 0o700


def test_nor_are_its_files_where_the_directory_was_there_before(small, tmp_path):
    (tmp_path / "run").mkdir(mode=0o755)
    config = small({"trials.count": 4, "training.rounds": 1})
    directory = RunDirectory.create(tmp_path / "run", config)
    (directory.path / "events.jsonl").touch(mode=0o644)
    grid = InProcessGrid(client_app.app, config.federation.clients, to_run_config(config))
    server_app.carry_out(grid, preflight(config), directory)
    modes = {path: path.stat().st_mode & 0o777 for path in directory.path.rglob("*")}
    assert {path.name for path in modes} >= {"config.toml", "ledger.jsonl", "lock", "facts.json"}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}


def test_a_directory_of_something_else_is_left_alone(small, tmp_path):
    (tmp_path / "precious.txt").write_text("thesis")
    with pytest.raises(InputError, match="holds no fedsim run"):
        RunDirectory.create(tmp_path, small())
    assert list(tmp_path.iterdir()) == [tmp_path / "precious.txt"]


def test_what_a_kill_left_of_a_directory_is_used_again(small, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def kill(*_, **__):
        raise Killed

    with monkeypatch.context() as killing, pytest.raises(Killed):
        killing.setattr(os, "rename", kill)
        killing.setattr(os, "unlink", kill)
        RunDirectory.create(tmp_path / "run", small())
    (left,) = (tmp_path / "run").iterdir()
    assert left.name.endswith(".partial")
    assert RunDirectory.create(tmp_path / "run", small()).config.trials == small().trials


def test_a_place_that_cannot_be_written_is_refused(small, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write to .*run\.out"):
        RunDirectory.create(tmp_path / "file" / "run", small())


def test_a_failed_write_leaves_the_old_file(small, tmp_path, monkeypatch):
    directory = RunDirectory.create(tmp_path / "run", small())
    directory.write_json("facts.json", {"a": 1})

    def full(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        directory.write_json("facts.json", {"a": 2})
    assert directory.read_json("facts.json") == {"a": 1}


def test_arrays_come_back_and_pickled_ones_are_refused(small, tmp_path):
    directory = RunDirectory.create(tmp_path / "run", small())
    arrays = {"worlds": np.array([True, False]), "log_odds": np.eye(2)}
    directory.write_arrays("transcript.npz", arrays)
    for name, array in directory.read_arrays("transcript.npz").items():
        np.testing.assert_array_equal(array, arrays[name])
    with pytest.raises(ValueError, match="would be pickled"):
        directory.write_arrays("evil.npz", {"objects": np.array([object()])})
    np.savez(directory.path / "evil.npz", objects=np.array([object()], dtype=object))
    with pytest.raises(InputError, match=r"evil.npz in .* is damaged .*Python objects.*; delete"):
        directory.read_arrays("evil.npz")


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_json_is_strict(number, small, tmp_path):
    directory = RunDirectory.create(tmp_path / "run", small())
    with pytest.raises(ValueError, match="JSON compliant"):
        directory.write_json("report.json", {"epsilon": number})
    assert not directory.has("report.json")


def test_an_unfinished_run_says_how_to_go_on(small, tmp_path):
    directory = RunDirectory.create(tmp_path / "run", small())
    for read in (lambda: directory.read_json("facts.json"), lambda: directory.read_arrays("t.npz")):
        with pytest.raises(InputError, match="fedsim run"):
            read()
    with pytest.raises(InputError, match="not a run directory"):
        RunDirectory.open(tmp_path)


def test_events_are_read_from_where_the_reader_stopped(small, tmp_path):
    directory = RunDirectory.create(tmp_path / "run", small())
    assert directory.events_size() == 0
    directory.log_event(round=1)
    ((first, offset),) = directory.events()
    assert first["round"] == 1
    directory.log_event(round=2)
    assert [event["round"] for event, _ in directory.events(offset)] == [2]
    with (directory.path / "events.jsonl").open("a") as file:
        file.write('{"round": 3')  # a writer in the middle of a line
    assert [event["round"] for event, _ in directory.events(offset)] == [2]
