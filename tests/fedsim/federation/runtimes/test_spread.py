"""Independent tasks on workers: each has its result once, until a worker is lost."""

from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from functools import partial

import pytest

from fedsim.federation.runtimes.spread import LostWorkersError, spread


class Pool:
    """A pool that does a task at once; one task ends its worker, and raises an error of its own."""

    broken: tuple[type[Exception], ...] = (BrokenProcessPool,)
    remote, width = False, 3

    def __init__(self):
        self.submitted: list[str] = []

    def submit(self, work, task):
        future = Future()
        self.submitted.append(task)
        if task == "deadly":
            future.set_exception(BrokenProcessPool())
        elif task == "wrong":
            future.set_exception(ValueError("wrong"))
        else:
            future.set_result(work(task))
        return future


def _tasks(*names):
    return {name: partial(str, name) for name in names}


def test_each_task_has_its_result_or_its_own_error():
    pool = Pool()
    found = dict(spread(pool, str.upper, _tasks("a", "b", "wrong", "c", "d")))
    assert pool.submitted == ["a", "b", "wrong", "c", "d"]
    assert [found[name].result() for name in "abcd"] == list("ABCD")
    assert isinstance(found["wrong"].exception(), ValueError)


def test_a_lost_worker_ends_it_after_what_has_finished():
    pool, found = Pool(), []
    with pytest.raises(LostWorkersError, match="a worker was lost with deadly; check whether"):
        for name, future in spread(pool, str.upper, _tasks("a", "deadly", "b", "c", "d")):
            found.append((name, future.result()))
    assert found == [("a", "A"), ("b", "B")]
    assert pool.submitted == ["a", "deadly", "b"]
