"""Several runs in processes of this machine: the same results, also where a process is killed."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from io import StringIO
from multiprocessing import active_children
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from adversaries.errors import InputError
from fedsim.api_studies import swept
from fedsim.config import Config, Scalar
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.whole_runs import WholeRuns


class Fragile:
    """A pool that loses all its tasks at the first `lost` results."""

    broken: tuple[type[Exception], ...] = (BrokenProcessPool,)

    def __init__(self, lost: int) -> None:
        self.lost = lost
        self.done: list[str] = []

    def submit(self, work: Callable[[Any], None], task: Any, name: str) -> Future[None]:
        future: Future[None] = Future()
        if self.lost > 0:
            future.set_exception(BrokenProcessPool())
        else:
            self.done.append(name)
            try:
                future.set_result(work(task))
            except InputError as error:
                future.set_exception(error)
        return future

    def restart(self) -> None:
        self.lost -= 1

    def memory_share(self, run: object) -> int:
        return 1


@pytest.fixture
def plans(small: Callable[..., Config], tmp_path: Path) -> list[Any]:
    made = []
    for name in ("a", "b"):
        config = small({"run.out": str(tmp_path / name)})
        RunDirectory.create(tmp_path / name, config)
        made.append(SimpleNamespace(path=tmp_path / name, config=config))
    return made


def test_runs_of_lost_processes_go_on_and_say_so(plans: list[Any]) -> None:
    pool, said = Fragile(lost=2), list[str]()
    runs = WholeRuns(pool, lambda _: None, said.append)  # type: ignore[arg-type]
    runs.begin(plans)
    assert [runs.finish(plan).path for plan in plans] == [plan.path for plan in plans]
    assert pool.done == ["a", "b"]
    assert said == ["a process was lost; these runs go on from their last finished batch: a, b"] * 2


def test_a_run_that_kills_its_processes_fails_and_the_others_go_on(plans: list[Any]) -> None:
    class Poisoned(Fragile):
        """A pool that breaks whenever the first run is in it."""

        def submit(self, work: Callable[[Any], None], task: Any, name: str) -> Future[None]:
            self.lost = 1 if name == "a" else self.lost
            return super().submit(work, task, name)

        def restart(self) -> None:
            self.lost = 0

    runs = WholeRuns(Poisoned(lost=0), lambda _: None, lambda _: None)  # type: ignore[arg-type]
    runs.begin(plans)
    with pytest.raises(RuntimeError, match="processes were lost 4 times while this run"):
        runs.finish(plans[0])
    assert runs.finish(plans[1]).path == plans[1].path


def test_a_run_that_cannot_be_carried_out_is_an_error_of_its_own(plans: list[Any]) -> None:
    def refuse(_: dict[str, Scalar]) -> None:
        raise InputError("not this one")

    runs = WholeRuns(Fragile(lost=0), refuse, lambda _: None)  # type: ignore[arg-type]
    runs.begin(plans)
    with pytest.raises(InputError, match="not this one"):
        runs.finish(plans[1])


@pytest.mark.slow
def test_a_sweep_in_processes_has_the_bits_of_one_also_where_one_is_killed(
    small: Callable[..., Config], tmp_path: Path
) -> None:
    config = small({"trials.count": 40, "trials.batch": 4, "run.device": "cpu"})
    over, here, there = {"privacy.rho-beta": [0.7, 0.8, 0.9]}, tmp_path / "here", tmp_path / "there"
    before, shown = set(active_children()), Console(file=StringIO(), width=200)

    def kill() -> None:
        while not any(there.glob("*/batches/*.npz")):
            time.sleep(0.01)
        os.kill(min(child.pid or 0 for child in set(active_children()) - before), signal.SIGKILL)

    killer = Thread(target=kill)
    killer.start()
    made = swept(config, over, there, {}, shown, workers=2)
    killer.join()
    assert "a process was lost; these runs go on" in shown.file.getvalue()  # type: ignore[attr-defined]
    for one, other in zip(
        made.outcomes, swept(config, over, here, {}, shown).outcomes, strict=True
    ):
        assert (one.failure, one.accuracies) == ("", other.accuracies)
        name = f"{one.point.name}/transcript.npz"
        assert np.array_equal(np.load(here / name)["log_odds"], np.load(there / name)["log_odds"])
