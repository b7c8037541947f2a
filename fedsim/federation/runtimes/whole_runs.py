"""Several runs at once: a process of this machine carries out each as a whole.

A campaign of many trials hands out batches (`dispatch`). A search has few trials for each setting,
so that the report takes most of the time, and a whole run is the better task.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

from fedsim.config import Scalar, to_run_config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.dispatch import MOST_REPEATS
from fedsim.federation.runtimes.pools import LocalPool
from fedsim.federation.server.plan import Plan

RunConfig = dict[str, Scalar]


class WholeRuns:
    """Runs that processes of a pool carry out.

    Only the process of a run writes its directory. If a process dies, its run goes on in another
    one from the last finished batch.

    Args:
        pool: the processes.
        carry_out: carries out the experiment of a configuration, or its remaining trials.
        say: shows a line to the user.
    """

    def __init__(
        self, pool: LocalPool, carry_out: Callable[[RunConfig], None], say: Callable[[str], None]
    ) -> None:
        self._pool, self._carry_out, self._say = pool, carry_out, say
        self._tasks: dict[Path, RunConfig] = {}
        self._sent: dict[Path, Future[None]] = {}
        self._losses = 0

    def begin(self, plans: Sequence[Plan]) -> None:
        """Hand out the runs, in order."""
        self._tasks = {plan.path: to_run_config(plan.config) for plan in plans}
        self._send(self._tasks)

    def finish(self, plan: Plan) -> RunDirectory:
        """Return the directory of a run when it is finished.

        Raises:
            InputError: the run cannot be carried out.
            RuntimeError: processes were lost too often.
        """
        while True:
            try:
                self._sent[plan.path].result()
            except self._pool.broken:
                self._replace()
            else:
                self._losses = 0
                return RunDirectory.open(plan.path)

    def _send(self, paths: Sequence[Path] | dict[Path, RunConfig]) -> None:
        for path in paths:
            task = self._tasks[path]
            self._sent[path] = self._pool.submit(self._carry_out, task, path.name)

    def _replace(self) -> None:
        """Start new processes, which go on with every run that is not finished."""
        self._losses += 1
        if self._losses > MOST_REPEATS:
            raise RuntimeError(
                f"processes were lost {self._losses} times, and no run was finished in the "
                "meantime; look for lack of memory (run.max-memory), or give fewer --workers"
            )
        self._pool.restart()
        left = [path for path, future in self._sent.items() if self._is_lost(future)]
        self._send(left)
        names = ", ".join(path.name for path in left)
        self._say(f"a process was lost; these runs go on from their last finished batch: {names}")

    def _is_lost(self, future: Future[None]) -> bool:
        if not future.done() or future.cancelled():
            return True
        return isinstance(future.exception(), self._pool.broken)
