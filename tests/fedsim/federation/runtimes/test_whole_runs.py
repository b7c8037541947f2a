"""Several runs in processes of this machine: the same results, also where a process is killed."""

import errno
import os
import signal
import tempfile
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing import active_children
from threading import Thread

import numpy as np
import pytest

import fedsim
from adversaries.errors import InputError
from fedsim import experiment
from fedsim.common import device, memory
from fedsim.configuration import to_run_config
from fedsim.federation.runtimes import places
from fedsim.federation.runtimes.batch_task import Program
from fedsim.federation.runtimes.dask_pool import Address
from fedsim.federation.runtimes.whole_runs import WholeRun, write_files


class Elsewhere:
    """A pool whose workers lack this machine's files; it loses the first `lost` tasks."""

    broken: tuple[type[Exception], ...] = (BrokenProcessPool,)
    remote, width = True, 2

    def __init__(self, lost=0):
        self.lost = lost

    def submit(self, work, task):
        future = Future()
        assert "/there/" not in str(task.own)
        try:
            if self.lost > 0:
                raise BrokenProcessPool
            future.set_result(work(task))
        except Exception as error:
            future.set_exception(error)
        return future

    def settings(self, run):
        return {"run.threads": 1}

    def stop(self):
        pass


@pytest.fixture
def _ungranted():
    """This process is the worker, and keeps no share of a machine."""
    yield
    device._GRANTED.clear()
    memory._GRANTED.clear()


CLOCKS = {"batch_seconds", "clients_seconds", "experiment"}


def _same(here, there):
    """Check that two run directories have the same files, and the same numbers."""
    names, others = (
        {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()}
        for place in (here, there)
    )
    assert names == others
    one, other = (dict(np.load(place / "transcript.npz")) for place in (here, there))
    for name in one.keys() - CLOCKS:
        assert one[name].tobytes() == other[name].tobytes(), name
    books = [(place / "ledger.jsonl").read_text() for place in (here, there)]
    assert len(books[0].splitlines()) == len(books[1].splitlines()) > 0


@pytest.mark.usefixtures("_ungranted")
def test_runs_on_machines_without_its_files_leave_the_directories_of_one_process(
    small, tmp_path, monkeypatch
):
    config = small({"trials.count": 8, "trials.batch": 4, "run.device": "cpu"})
    over, here, there = {"privacy.rho-beta": [0.7, 0.8]}, tmp_path / "here", tmp_path / "there"

    @contextmanager
    def opened(*_):
        yield Elsewhere()

    monkeypatch.setattr(places, "opened", opened)
    cluster = Address("tcp://127.0.0.1:1", None)
    made = fedsim.choose(config, over=over, out=there, cluster=cluster)
    fedsim.choose(config, over=over, out=here, workers=None)
    for outcome in made.details:
        assert outcome.failure == ""
        name = outcome.point.name
        _same(here / name, there / name)
        page = (there / name / "report.html").read_text()
        assert tempfile.gettempdir() not in page.replace(str(there), "")
    # The same call again finds the finished runs, and more of them is more work.
    before = (there / "rho-beta=0.7" / "identity").read_text()
    assert fedsim.choose(config, over=over, out=there, cluster=cluster).details == made.details
    assert (there / "rho-beta=0.7" / "identity").read_text() == before


def test_a_lost_worker_ends_all_runs_and_the_next_command_carries_them_out(
    small, tmp_path, monkeypatch
):
    lost = iter((1, 0))

    @contextmanager
    def opened(*_):
        yield Elsewhere(next(lost))

    monkeypatch.setattr(places, "opened", opened)
    over, cluster = {"privacy.rho-beta": [0.7, 0.8]}, Address("tcp://127.0.0.1:1", None)
    made = fedsim.choose(small(), over=over, out=tmp_path / "out", cluster=cluster)
    failures = [outcome.failure for outcome in made.details]
    assert failures[0].startswith("a worker was lost with")
    assert failures[1] == "the workers are lost; give the same command again to continue"
    made = fedsim.choose(small(), over=over, out=tmp_path / "out", cluster=cluster)
    assert [outcome.failure for outcome in made.details] == ["", ""]


def test_a_run_that_draws_noise_of_the_system_is_refused_for_a_cluster(small, tmp_path):
    config = small({"privacy.noise-source": "system"})
    over = {"privacy.rho-beta": [0.7, 0.8]}
    with pytest.raises(InputError, match="cannot be drawn again"):
        fedsim.choose(
            config, over=over, out=tmp_path / "out", cluster=Address("tcp://127.0.0.1:1", None)
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_table_in_processes_has_the_bits_of_one_also_where_one_is_killed(small, tmp_path):
    config = small({"trials.count": 40, "trials.batch": 4, "run.device": "cpu"})
    over, here, there = {"privacy.rho-beta": [0.7, 0.8, 0.9]}, tmp_path / "here", tmp_path / "there"
    before = set(active_children())

    def kill():
        while not any(there.glob("*/batches/*.npz")):
            time.sleep(0.01)
        os.kill(min(child.pid or 0 for child in set(active_children()) - before), signal.SIGKILL)

    killer = Thread(target=kill)
    killer.start()
    lost = fedsim.choose(config, over=over, out=there, workers=2)
    killer.join()
    assert any("a worker was lost" in outcome.failure for outcome in lost.details)
    made = fedsim.choose(config, over=over, out=there, workers=2)
    for one, other in zip(
        made.details,
        fedsim.choose(config, over=over, out=here, workers=None).details,
        strict=True,
    ):
        assert (one.failure, one.accuracies) == ("", other.accuracies)
        name = f"{one.point.name}/transcript.npz"
        assert np.array_equal(np.load(here / name)["log_odds"], np.load(there / name)["log_odds"])


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "inside/../../outside"])
def test_a_worker_cannot_write_outside_of_the_folder(name, tmp_path):
    with pytest.raises(ValueError, match="outside of its folder"):
        write_files(tmp_path / "run", {"report.json": b"{}", name: b""})
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("_ungranted")
def test_the_full_disk_of_a_worker_is_named(small, tmp_path, monkeypatch):
    def fill(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    config = small({"trials.count": 4, "run.device": "cpu", "run.out": str(tmp_path / "run")})
    program = asdict(Program.here(config.experiment))
    task = WholeRun(to_run_config(config), {}, program, {"config.toml": b""})
    monkeypatch.setattr(experiment, "in_process", fill)
    monkeypatch.setattr(experiment, "prepare", lambda _: None)
    with pytest.raises(InputError, match=r"the disk of worker .* is full; make room in its /"):
        experiment.carry_out_whole(task)
