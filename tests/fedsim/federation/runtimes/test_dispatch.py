"""Batches of a campaign that workers train: the same bits, in any order, whatever is lost."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import active_children
from threading import Thread

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim import worker
from fedsim.experiment import run_in_process
from fedsim.federation.runs import ledger
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes import dispatch
from fedsim.federation.runtimes.batch_task import BatchTask, Done
from fedsim.federation.runtimes.dispatch import Dispatcher
from fedsim.federation.runtimes.pools import LocalPool
from fedsim.federation.server.plan import preflight
from fedsim.reports import page

Train = Callable[[BatchTask], Done]

FEW = {"training.rounds": 2, "trials.batch": 4, "trials.count": 16}
LAST = 12
"""First trial of the last batch."""

CLOCKS = {"batch_seconds", "clients_seconds", "experiment"}
"""What of a transcript is of one run alone."""


def _within(seconds, holds):
    """Return whether a condition comes true in time."""
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


@pytest.fixture(autouse=True)
def _without_pages(monkeypatch):
    monkeypatch.setattr(page, "write_figures", lambda *_: [])
    monkeypatch.setattr(page, "render_html", lambda *_: "")


class Backwards:
    """A pool whose workers finish last what they were given first, or are lost.

    lost: the number of the task that is lost, counted from 1; 0: none.
    """

    broken: tuple[type[Exception], ...] = (BrokenProcessPool,)
    width = 3

    def __init__(self, lost=0, change=lambda task: task):
        self.lost, self.change, self.finished = lost, change, 0
        self.waiting: list[tuple[Future[Done], BatchTask, Train]] = []

    def settings(self, run):
        return {"run.threads": 1}

    def submit(self, train, task):
        future = Future()
        self.waiting.append((future, self.change(task), train))
        if len(self.waiting) == self.width or task.first == LAST:
            while self.waiting:
                self._finish(*self.waiting.pop())
        return future

    def _finish(self, future, task, train):
        self.finished += 1
        try:
            if self.finished == self.lost:
                raise BrokenProcessPool
            future.set_result(train(task))
        except Exception as error:
            future.set_exception(error)

    def stop(self):
        pass


def _carried_out(config, path, pool=None):
    directory = RunDirectory.create(path, config)
    elsewhere = None if pool is None else Dispatcher(pool, worker.train_batch)
    run_in_process(preflight(config), directory, elsewhere)
    return directory


def _same_bits(one, other):
    first, second = (each.read_arrays("transcript.npz") for each in (one, other))
    assert first.keys() == second.keys()
    return all(
        first[name].dtype == second[name].dtype and first[name].tobytes() == second[name].tobytes()
        for name in first.keys() - CLOCKS
    )


def _rounds(directory):
    """Return the events of rounds in the order of the trials, without the time."""
    events = [event for event, _ in directory.events() if "round" in event]
    for event in events:
        del event["time"]
    return sorted(events, key=lambda event: (event["trials"], event["round"]))


def test_batches_that_end_in_another_order_leave_what_one_process_leaves(small, tmp_path):
    config = small(FEW)
    here = _carried_out(config, tmp_path / "here")
    there = _carried_out(config, tmp_path / "there", Backwards())
    assert _same_bits(here, there)
    assert ledger.verified(here) == ledger.verified(there)
    assert _rounds(here) == _rounds(there)


def test_a_lost_worker_ends_the_run_which_the_next_command_continues(small, tmp_path):
    config = small(FEW)
    here = _carried_out(config, tmp_path / "here")
    with pytest.raises(RuntimeError, match=r"a worker was lost with trials-4;.*fedsim run"):
        _carried_out(config, tmp_path / "there", Backwards(lost=2))
    assert len(list((tmp_path / "there" / "batches").iterdir())) == 2  # what had finished
    there = _carried_out(config, tmp_path / "there", Backwards())
    assert _same_bits(here, there)  # the epsilons of all rounds among them
    rows = ledger.verified(there)
    assert {row.batch for row in rows if row.attempt == 2} == {4}


@pytest.mark.parametrize("what", ["fedsim", "torch", "device", "data"])
def test_a_worker_with_another_program_is_refused_by_its_name(small, tmp_path, what):
    def change(task):
        return replace(task, program=task.program | {what: "another"})

    with pytest.raises(InputError, match=f"worker .*:{os.getpid()} has {what} .* another; "):
        _carried_out(small(FEW), tmp_path / "run", Backwards(change=change))


def test_noise_that_cannot_be_drawn_again_is_refused():
    dispatch.check_chargeable("seed", 0)
    with pytest.raises(InputError, match="noise from the operating system"):
        dispatch.check_chargeable("system", 0)
    with pytest.raises(InputError, match="tolerated-dropouts"):
        dispatch.check_chargeable("seed", 1)


def test_workers_share_the_cores_and_the_memory(small):
    pool = LocalPool(2)
    own = pool.settings(small({"run.max-memory": "4GB", "run.device": "cpu"}).run)
    assert own["run.max-memory"] == "2000000000B"
    assert pool.settings(small({"run.threads": 3, "run.device": "cpu"}).run)["run.threads"] == 3
    pool.stop()


@pytest.mark.slow
def test_a_task_for_a_worker_that_has_died_is_a_lost_task():
    before, pool = set(active_children()), LocalPool(1)
    ask = os.getenv
    pool.submit(ask, "HOME").result()
    (worker_process,) = set(active_children()) - before
    worker_process.kill()
    worker_process.join()
    assert _within(10, lambda: bool(pool._executor._broken))
    assert isinstance(pool.submit(ask, "HOME").exception(), pool.broken)
    pool.stop()


@pytest.mark.slow
def test_a_worker_sees_one_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    pool = LocalPool(2)
    ask = os.getenv
    seen = pool.submit(ask, "CUDA_VISIBLE_DEVICES")
    assert seen.result() == "4"
    pool.stop()


@pytest.mark.slow
def test_processes_give_the_bits_of_one_also_where_one_of_them_is_killed(small, tmp_path):
    config = small(FEW | {"trials.count": 40, "run.device": "cpu"})
    here = _carried_out(config, tmp_path / "here")
    before, pool = set(active_children()), LocalPool(2)

    def kill():
        """Kill a worker once a batch has come back."""
        while not any((tmp_path / "there").glob("batches/*.npz")):
            time.sleep(0.01)
        os.kill(min(child.pid or 0 for child in set(active_children()) - before), signal.SIGKILL)

    killer = Thread(target=kill)
    killer.start()
    with pytest.raises(RuntimeError, match=r"a worker was lost.*fedsim run"):
        _carried_out(config, tmp_path / "there", pool)
    killer.join()
    pool.stop()
    # The thread of the executor may be the one that collects a process, a moment later.
    assert _within(5, lambda: set(active_children()) == before)
    pool = LocalPool(2)
    there = _carried_out(config, tmp_path / "there", pool)
    pool.stop()
    assert _same_bits(here, there)
    assert np.all(there.read_arrays("transcript.npz")["worlds"].sum() == 20)
