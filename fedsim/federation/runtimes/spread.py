"""Independent tasks on a pool of workers: handed out, and repeated where a worker is lost."""

import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, wait

from fedsim.federation.runtimes.pools import Given, Result, WorkerPool

MOST_LOSSES = 4
"""Number of workers that are lost with a task, after which the task fails."""

SUSPICIOUS = 2
"""Number of workers that are lost with a task, after which the task runs alone. So a task that its
worker does not survive makes no other task fail."""

PAUSE = 2.0
"""Seconds between two checks for lost workers."""


class LostWorkersError(RuntimeError):
    """Workers were lost with a task, also when it was the only one, or their scheduler was."""


def spread(
    pool: WorkerPool,
    work: Callable[[Given], Result],
    tasks: Mapping[str, Callable[[], Given]],
    repeated: Callable[[list[str]], None],
) -> Iterator[tuple[str, Future[Result]]]:
    """Yield each task's name with its finished future, in any order.

    The future has the task's own error, or LostWorkersError.

    Args:
        work: the function that a worker runs.
        tasks: name -> a function that returns the task, called each time it is handed out. As many
            are handed out as keep the workers busy, in order.
        repeated: receives the names of tasks that are repeated since their worker was lost.
    """
    left, losses = list(tasks), Counter[str]()
    sent: dict[Future[Result], tuple[str, str]] = {}

    def hand_out() -> None:
        away = {name for name, _ in sent.values()}
        waiting = [name for name in left if name not in away]
        chosen = [name for name in waiting if losses[name] < SUSPICIOUS]
        chosen = chosen[: max(0, pool.width - len(sent))]
        if not sent and not chosen:
            chosen = waiting[:1]
        for name in chosen:
            unique = f"{name}-{secrets.token_hex(4)}"
            sent[pool.submit(work, tasks[name](), unique)] = name, unique

    def collect(until: str) -> tuple[list[tuple[str, Future[Result]]], list[str]]:
        """Return the finished and the lost tasks among those that are away."""
        finished, lost = [], []
        done = wait(sent, PAUSE, until).done
        for future in [each for each in sent if each in done]:  # as they were handed out
            name, _ = sent.pop(future)
            if future.cancelled() or isinstance(future.exception(), pool.broken):
                lost.append(name)
            else:
                finished.append((name, future))
        return finished, lost

    while left:
        hand_out()
        finished, lost = collect(FIRST_COMPLETED)
        if lost:
            # The other tasks of a broken pool fail at once.
            others, further = collect(ALL_COMPLETED)
            finished, lost = finished + others, lost + further
            losses.update(lost)
            pool.restart()
            failed = [name for name in lost if losses[name] >= MOST_LOSSES]
            finished += [(name, _failed()) for name in failed]
            lost = [name for name in lost if name not in failed]
        moved = pool.repeated()
        lost += [name for name, unique in sent.values() if unique in moved]
        if lost:
            repeated(lost)
        for name, future in finished:
            left.remove(name)
            yield name, future


def _failed() -> Future[Result]:
    future: Future[Result] = Future()
    future.set_exception(
        LostWorkersError(
            f"the worker of this task was lost {MOST_LOSSES} times, the last times while the task "
            "ran alone; check whether memory is short (run.max-memory)"
        )
    )
    return future
