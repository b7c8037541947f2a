"""Several runs at once: a worker carries out each as a whole.

A campaign of many trials hands out batches (`dispatch`). A search has few trials for each setting,
so that the report takes most of the time, and a whole run is the better task.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Self

from fedsim.common import private_files
from fedsim.common.private_files import PARTIAL
from fedsim.configuration import Scalar, to_run_config
from fedsim.federation.runs.run_directory import LAST_FILE, LOCK, RunDirectory
from fedsim.federation.runtimes.batch_task import Program
from fedsim.federation.runtimes.pools import WorkerPool
from fedsim.federation.runtimes.spread import spread
from fedsim.federation.server.plan import Plan

LEAVES = (
    "get each configuration with its seed, the paths of the data, and the files of runs that began "
    "earlier. They read the data themselves and send the files of each finished run back."
)
"""What the workers of a cluster get."""

Files = dict[str, bytes]
"""The files of a run directory by their paths in it."""


@dataclass(frozen=True)
class WholeRun:
    """A run for a worker.

    Attributes:
        run_config: the configuration, as Flower's run config.
        own: keys that differ for this worker, its share of its machine. The run keeps its own.
        program: the program of the process that searches; {} on the same machine.
        files: the files of the run so far; None: the worker writes the run directory itself.
    """

    run_config: dict[str, Scalar]
    own: dict[str, Scalar]
    program: dict[str, str]
    files: Files | None


class WholeRuns:
    """Runs that workers carry out.

    Processes of this machine write the run directories: if one dies, the same command continues its
    run from the last finished batch. A worker of a cluster sends the files of its finished run, and
    this process writes them.

    A script that starts processes must guard its start by `if __name__ == "__main__":`. Otherwise
    it starts again in each of them, which ends them.

    Args:
        pool: the workers.
        carry_out: carries out a run, or its remaining trials; returns its files, if it has any.
    """

    def __init__(self, pool: WorkerPool, carry_out: Callable[[WholeRun], Files | None]) -> None:
        self._pool, self._carry_out = pool, carry_out
        self._locks = ExitStack()
        self._finished: dict[str, Future[Files | None]] = {}
        self._results: Iterator[tuple[str, Future[Files | None]]] = iter(())
        self._paths: dict[str, Path] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._locks.close()

    def begin(self, plans: Sequence[Plan]) -> None:
        """Take runs, in order. `finish` hands them out.

        Raises InputError if another process writes one of them.
        """
        self._paths = {str(plan.path): plan.path for plan in plans}
        if self._pool.remote:
            for plan in plans:
                directory = RunDirectory.create(plan.path, plan.config)
                self._locks.enter_context(directory.lock())
        # Each share is that of the free memory before any run takes some.
        shares = [self._pool.settings(plan.config.run) for plan in plans]
        tasks = {
            str(plan.path): partial(self._task, plan, share)
            for plan, share in zip(plans, shares, strict=True)
        }
        self._results = spread(self._pool, self._carry_out, tasks)

    def finish(self, plan: Plan) -> RunDirectory:
        """Return the directory of a run when it is finished.

        Raises:
            InputError: the run cannot be carried out.
            RuntimeError: a worker was lost, with this run or an earlier one.
        """
        while str(plan.path) not in self._finished:
            arrived = next(self._results, None)
            if arrived is None:  # an earlier error ended the results
                raise RuntimeError("the workers are lost; give the same command again to continue")
            name, future = arrived
            self._finished[name] = future
            if future.exception() is None and (files := future.result()) is not None:
                write_files(self._paths[name], files)
        self._finished[str(plan.path)].result()
        return RunDirectory.open(plan.path)

    def _task(self, plan: Plan, own: dict[str, Scalar]) -> WholeRun:
        run_config = to_run_config(plan.config)
        if not self._pool.remote:
            return WholeRun(run_config, own, {}, None)
        program = asdict(Program.here(plan.config.experiment))
        return WholeRun(run_config, own, program, read_files(plan.path))


def read_files(folder: Path) -> Files:
    """Return the files of a run directory, without its lock."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in files
        if path.name != LOCK and not path.name.endswith(PARTIAL)
    }


def write_files(folder: Path, files: Files) -> None:
    """Write the files of a run directory, each whole; the one that ends the run comes last.

    Raises ValueError for a name that leads out of the folder.
    """
    for name in files:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ValueError(f"a worker sent a file '{name}', which is outside of its folder")
    for name in sorted(files, key=lambda name: name == LAST_FILE):
        private_files.make_directory((folder / name).parent)
        private_files.write_private(folder / name, files[name])
