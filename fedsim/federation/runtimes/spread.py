"""Independent tasks on a pool of workers."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import islice

from fedsim.federation.runtimes.pools import Given, Result, WorkerPool


class LostWorkersError(RuntimeError):
    """A worker was lost with its task, or the scheduler was lost."""


def spread(
    pool: WorkerPool, work: Callable[[Given], Result], tasks: Mapping[str, Callable[[], Given]]
) -> Iterator[tuple[str, Future[Result]]]:
    """Yield each task's name with its finished future, which may have its error, in any order.

    Args:
        pool: the workers.
        work: the function that a worker runs.
        tasks: name -> a function that returns the task, called when it is handed out. As many are
            handed out as keep the workers busy, in order.

    Raises:
        LostWorkersError: a worker was lost. What finished before has been yielded.
    """
    left, away = iter(tasks.items()), dict[Future[Result], str]()
    while True:
        for name, make in islice(left, max(0, pool.width - len(away))):
            away[pool.submit(work, make())] = name
        if not away:
            return
        done = wait(away, return_when=FIRST_COMPLETED).done
        ended = [(future, away.pop(future)) for future in [*away] if future in done]
        lost = [name for future, name in ended if _is_lost(future, pool)]
        yield from ((name, future) for future, name in ended if name not in lost)
        if lost:
            raise LostWorkersError(
                f"a worker was lost with {lost[0]}; check whether memory is short (run.max-memory)"
            )


def _is_lost(future: Future[Result], pool: WorkerPool) -> bool:
    return future.cancelled() or isinstance(future.exception(), pool.broken)
