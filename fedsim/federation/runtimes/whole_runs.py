"""Several runs at once: a process of this machine carries out each as a whole.

A campaign of many trials hands out batches (`dispatch`). A search has few trials for each setting,
so that the report takes most of the time, and a whole run is the better task.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path

from fedsim.config import Scalar, to_run_config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.dispatch import MOST_REPEATS
from fedsim.federation.runtimes.pools import LocalPool
from fedsim.federation.server.plan import Plan

Task = tuple[dict[str, Scalar], int]
"""A configuration, and the bytes that its process may use."""


class WholeRuns:
    """Runs that processes of a pool carry out.

    The pool must be able to start processes: a script that is not guarded by
    `if __name__ == "__main__":` starts itself again in each of them, which ends them.

    Only the process of a run writes its directory. If a process dies, its run goes on in another
    one from the last finished batch.

    Args:
        pool: the processes.
        carry_out: carries out the experiment of a configuration, or its remaining trials.
        say: shows a line to the user.
    """

    def __init__(
        self, pool: LocalPool, carry_out: Callable[[Task], None], say: Callable[[str], None]
    ) -> None:
        self._pool, self._carry_out, self._say = pool, carry_out, say
        self._tasks: dict[Path, Task] = {}
        self._sent: dict[Path, Future[None]] = {}

    def begin(self, plans: Sequence[Plan]) -> None:
        """Hand out the runs, in order."""
        self._tasks = {
            plan.path: (to_run_config(plan.config), self._pool.memory_share(plan.config.run))
            for plan in plans
        }
        self._send(self._tasks)

    def finish(self, plan: Plan) -> RunDirectory:
        """Return the directory of a run when it is finished.

        Raises:
            InputError: the run cannot be carried out.
            RuntimeError: processes were lost too often while this run was awaited.
        """
        for _ in range(MOST_REPEATS + 1):
            try:
                self._sent[plan.path].result()
            except self._pool.broken:
                self._replace()
            else:
                return RunDirectory.open(plan.path)
        # It may be this run that its process does not survive: the others go on without it.
        del self._tasks[plan.path]
        self._replace()
        raise RuntimeError(
            f"processes were lost {MOST_REPEATS + 1} times while this run was awaited; look for "
            "lack of memory (run.max-memory), give fewer --workers, or carry it out alone"
        )

    def _send(self, paths: Iterable[Path]) -> None:
        for path in paths:
            task = self._tasks[path]
            self._sent[path] = self._pool.submit(self._carry_out, task, path.name)

    def _replace(self) -> None:
        """Start new processes, which go on with every run that is not finished."""
        self._pool.restart()
        left = [path for path in self._tasks if self._is_lost(self._sent[path])]
        self._send(left)
        if not left:
            return
        names = ", ".join(path.name for path in left)
        self._say(f"a process was lost; these runs go on from their last finished batch: {names}")

    def _is_lost(self, future: Future[None]) -> bool:
        if not future.done() or future.cancelled():
            return True
        return isinstance(future.exception(), self._pool.broken)
