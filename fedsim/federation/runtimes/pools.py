"""Pools of workers: their interface, and one of processes on this machine.

Python pickles tasks between processes that one command started.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol, TypeVar

import torch

from fedsim.common import device
from fedsim.configuration import Scalar
from fedsim.configuration.campaign import RunConfig
from fedsim.game.federation import memory_limit

VISIBLE = "CUDA_VISIBLE_DEVICES"

Given = TypeVar("Given")
Result = TypeVar("Result")


class WorkerPool(Protocol):
    """Workers that take tasks through an Executor."""

    broken: tuple[type[Exception], ...]
    """Errors of a task whose worker is lost."""

    remote: bool
    """Whether the workers may lack the files of this machine."""

    @property
    def width(self) -> int:
        """The number of tasks that keep all workers busy."""

    def settings(self, run: RunConfig) -> dict[str, Scalar]:
        """Return the keys that differ in a worker's configuration: its share of its machine."""

    def submit(self, work: Callable[[Given], Result], task: Given) -> Future[Result]:
        """Submit a task to a worker."""

    def stop(self) -> None:
        """Drop the remaining tasks, and end the processes that this pool started."""


class LocalPool:
    """Processes of this machine, each with its share of the cores, the memory or the GPUs."""

    broken: tuple[type[Exception], ...] = (BrokenProcessPool,)
    remote = False

    def __init__(self, workers: int) -> None:
        """Start the processes, at least 1."""
        self.workers = workers
        # One more task waits, so that no worker does.
        self.width = workers + 1
        self._others = set(multiprocessing.active_children())
        context = multiprocessing.get_context("spawn")
        arguments = context.Value("i", 0), _visible_gpus()
        self._executor = ProcessPoolExecutor(workers, context, _begin, arguments)

    def settings(self, run: RunConfig) -> dict[str, Scalar]:
        threads = run.threads or max(1, device.threads(0) // self.workers)
        own: dict[str, Scalar] = {"run.threads": threads}
        where, sharing = device.resolve(run.device), self.workers
        if where.type == "cuda":
            sharing = -(-self.workers // torch.cuda.device_count())
        if sharing > 1:
            limit = memory_limit(run.memory_limit, where)
            own["run.max-memory"] = f"{limit // sharing}B"
        return own

    def submit(self, work: Callable[[Given], Result], task: Given) -> Future[Result]:
        try:
            return self._executor.submit(work, task)
        except BrokenProcessPool as error:
            # A worker died since the last result: this task is lost like those in the pool.
            lost: Future[Result] = Future()
            lost.set_exception(error)
            return lost

    def stop(self) -> None:
        """Drop the remaining tasks, and end the processes."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        # The executor itself would wait for the running batches.
        for process in set(multiprocessing.active_children()) - self._others:
            process.terminate()
            process.join()


def _visible_gpus() -> list[str]:
    if named := os.environ.get(VISIBLE):
        return named.split(",")
    return list(map(str, range(torch.cuda.device_count())))


def _begin(counter: Any, gpus: list[str]) -> None:
    """Make a process a worker with its own GPU, which ends with its parent, not by Ctrl-C."""
    # The command handles Ctrl-C, and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with counter.get_lock():
        turn, counter.value = counter.value, counter.value + 1
    if gpus:  # CUDA reads the variable at its first use
        os.environ[VISIBLE] = gpus[turn % len(gpus)]
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)  # else a killed command would leave its workers waiting for tasks
