"""Independent tasks on workers that are lost: each has its result once, or its own failure."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from functools import partial

import pytest

from fedsim.federation.runtimes.spread import LostWorkersError, spread


class Breaking:
    """A pool like one of processes: its tasks are done in order, and a deadly one breaks all.

    deadly: how often each task ends its worker.
    """

    broken: tuple[type[Exception], ...] = (BrokenProcessPool,)
    remote, width = False, 3

    def __init__(self, deadly: dict[str, int]) -> None:
        self.deadly = deadly
        self.waiting: list[tuple[Future[str], str]] = []
        self.together: list[set[str]] = []

    def submit(self, work: Callable[[str], str], task: str, name: str) -> Future[str]:
        future: Future[str] = Future()
        self.waiting.append((future, task))
        return future

    def repeated(self) -> Sequence[str]:
        """Do the waiting tasks."""
        names = {task for _, task in self.waiting}
        self.together.append(names)
        killer = next((name for name in sorted(names) if self.deadly.get(name)), None)
        if killer:
            self.deadly[killer] -= 1
        for future, task in self.waiting:
            if killer:
                future.set_exception(BrokenProcessPool())
            else:
                future.set_result(task)
        self.waiting = []
        return ()

    def restart(self) -> None:
        assert self.waiting == []


def _spread(pool: Breaking, names: str) -> tuple[dict[str, Future[str]], list[list[str]]]:
    notes: list[list[str]] = []
    tasks = {name: partial(str, name) for name in names}
    results = list(spread(pool, str, tasks, notes.append))  # type: ignore[arg-type]
    assert sorted(name for name, _ in results) == sorted(names)
    return dict(results), notes


def test_tasks_of_a_lost_worker_are_repeated_and_named() -> None:
    futures, notes = _spread(Breaking({"b": 1}), "abcd")
    assert [futures[name].result() for name in "abcd"] == list("abcd")
    assert list(map(sorted, notes)) == [["a", "b", "c"]]


def test_a_task_that_kills_each_worker_fails_alone() -> None:
    pool = Breaking({"b": 100})
    futures, _ = _spread(pool, "abcdef")
    with pytest.raises(LostWorkersError, match="lost 4 times"):
        futures["b"].result()
    assert [futures[name].result() for name in "acdef"] == list("acdef")
    assert pool.deadly["b"] == 96
    assert pool.together[-2:] != pool.together[:2]
    assert {"b"} in pool.together
