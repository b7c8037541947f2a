"""Work in blocks, which threads share. Results come in the order of the blocks."""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from typing import Generic, TypeVar

import torch

Result = TypeVar("Result")


def slices(length: int, step: int) -> list[slice]:
    """Return slices of at most `step` that cover a length."""
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]


def even(length: int, most: float) -> int:
    """Return the length of equal parts of a whole that are at most so long."""
    return math.ceil(length / math.ceil(length / max(1, int(most))))


def run(
    function: Callable[..., Result], blocks: Sequence[tuple[slice, ...]], threads: int
) -> Iterator[Result]:
    """Yield the results of all blocks in order. Threads work a little ahead."""
    _keep_freed_memory()
    if threads == 1 or len(blocks) == 1:
        yield from (function(*block) for block in blocks)
        return
    ahead: deque[Future[Result]] = deque()
    pool = _pool(threads)
    try:
        for block in blocks:
            if len(ahead) > threads:
                yield ahead.popleft().result()
            ahead.append(pool.submit(function, *block))
        while ahead:
            yield ahead.popleft().result()
    finally:
        # After an error, nothing may continue in the background.
        for future in ahead:
            future.cancel()
        wait(ahead)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Return a permanent pool, since new threads would touch new memory in every call."""
    return ThreadPoolExecutor(threads, thread_name_prefix="fedsim")


@cache
def _keep_freed_memory() -> None:
    """Keep glibc from returning every block's memory, by one large allocation (mallopt(3))."""
    torch.empty(2**25 - 2**15, dtype=torch.uint8)


class ThreadPool(Generic[Result]):
    """Objects that one thread at a time may use, made as they are needed."""

    def __init__(self, make: Callable[[], Result]) -> None:
        self._make = make
        self._idle: list[Result] = []

    @contextmanager
    def lend(self) -> Iterator[Result]:
        """Yield an object to use within the block. After an error it is not lent again."""
        try:
            thing = self._idle.pop()
        except IndexError:
            thing = self._make()
        yield thing
        self._idle.append(thing)
