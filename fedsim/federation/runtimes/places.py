"""The places where other processes do the work of a command: this machine, or a Dask cluster."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from adversaries.errors import InputError
from fedsim.federation.runtimes.dask_pool import Address, DaskPool
from fedsim.federation.runtimes.pools import LocalPool, WorkerPool

Workers = int | Address
"""The number of processes of this machine, or the scheduler of a Dask cluster."""


def processes(workers: Workers | None) -> int:
    """Return the number of processes that share the memory of this machine.

    Raises InputError if it is below 1.
    """
    if not isinstance(workers, int):
        return 1
    if workers < 1:
        raise InputError(f"--workers is {workers}; give 1 or more, or leave it out")
    return workers


@contextmanager
def opened(workers: Workers, say: Callable[[str], None], leaves: str) -> Iterator[WorkerPool]:
    """Yield a pool of workers, which ends with the block. A cluster goes on running.

    Args:
        say: shows a line to the user.
        leaves: a sentence on what the workers of a cluster get, and what they send back.

    Raises:
        InputError: the cluster does not answer, or has no workers.
    """
    pool: LocalPool | DaskPool
    if isinstance(workers, int):
        pool = LocalPool(processes(workers))
    else:
        # The user must know what leaves this machine before it does.
        say(f"The workers at {workers.url} {leaves}")
        pool = DaskPool(workers)
        say(f"{pool.workers} worker{'s' * (pool.workers != 1)} at {workers.url}")
    try:
        yield pool
    finally:
        pool.stop()
