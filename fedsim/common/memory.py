"""The memory that a computation needs, and the memory that is free."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

CGROUP = Path("/sys/fs/cgroup")
"""Folder where Linux has the limits of a container."""


def spare(device: torch.device) -> int:
    """Return three quarters of the free bytes of a device, or of this process's container."""
    return _three_quarters(device, free=True)


def installed(device: torch.device) -> int:
    """Return three quarters of all bytes of a device, or of this process's container."""
    return _three_quarters(device, free=False)


def _three_quarters(device: torch.device, free: bool) -> int:
    if device.type == "cuda":
        left, whole = torch.cuda.mem_get_info(device)
        return (left if free else whole) * 3 // 4
    import psutil  # noqa: PLC0415  (the numerical core needs only torch, numpy and scipy)

    memory = psutil.virtual_memory()
    size = memory.available if free else memory.total
    with contextlib.suppress(OSError, ValueError):  # no limit
        used = int((CGROUP / "memory.current").read_text()) if free else 0
        size = min(size, int((CGROUP / "memory.max").read_text()) - used)
    return max(0, size) * 3 // 4


def readable(size: float) -> str:
    """Return a number of bytes in MiB, or in KiB or bytes if it is small."""
    for unit, name in ((2**20, "MiB"), (2**10, "KiB")):
        if size >= 10 * unit:
            return f"{size / unit:.0f} {name}"
    return f"{size:.0f} bytes"


@dataclass(frozen=True)
class Footprint:
    """Peak bytes of a block of t trials and r records: fixed + t trial + r record + t r example."""

    fixed: float
    trial: float
    record: float
    example: float

    def bytes(self, trials: int, records: int) -> float:
        own = trials * self.trial + records * self.record
        return self.fixed + own + trials * records * self.example


SIDE, LARGEST_SIDE = 3, 768
"""Trials and records of the largest measured block: at first, and at most."""

MEASURABLE = 2**24
"""Bytes of a block on a GPU beside which the allocator's units of 512 bytes are negligible."""


def footprint(run: Callable[[int, int], object], device: torch.device) -> Footprint:
    """Return a computation's footprint, by small blocks; on a GPU up to `MEASURABLE`."""
    run(1, 1)  # allocate what is kept
    side = SIDE
    while device.type != "cpu" and side < LARGEST_SIDE:
        if peak_bytes(partial(run, side, side), device) >= MEASURABLE:
            break
        side *= 2
    blocks = [(1, 1), (1, side), (side, 1), (side, side)]
    peaks = [peak_bytes(partial(run, *block), device) for block in blocks]
    terms = [[1, trials, records, trials * records] for trials, records in blocks]
    fixed, trial, record, example = np.maximum(np.linalg.solve(terms, peaks), 0).tolist()
    return Footprint(fixed, trial, record, max(1.0, example))


def peak_bytes(run: Callable[[], object], device: torch.device) -> int:
    """Return the peak bytes of a function's tensors, beyond the tensors before it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        return torch.cuda.max_memory_allocated(device) - before
    with _Storages() as storages:
        run()
    return storages.peak


def _tensors(values: object) -> Iterator[Tensor]:
    """Yield the tensors that an operator takes or returns; torch's own search is slower."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, tuple | list):
        for value in values:
            yield from _tensors(value)
    elif isinstance(values, dict):
        yield from _tensors(list(values.values()))


class _Storages(TorchDispatchMode):
    """Adds up the storages that operators allocate, while they live."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._alive: dict[int, object] = {}
        self._bytes = self.peak = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: nothing is compiled here, and skipping would import Dynamo (1.4 s)."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        for tensor in _tensors((args, kwargs)):  # allocated elsewhere, unless known already
            self._add(tensor.untyped_storage(), 0)
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            self._add(tensor.untyped_storage(), tensor.untyped_storage().nbytes())
        return result

    def _add(self, storage: torch.UntypedStorage, size: int) -> None:
        number = storage._cdata
        if number in self._alive:
            return

        def gone(_: object) -> None:
            self._bytes -= size
            del self._alive[number]

        self._alive[number] = ref(storage, gone)
        self._bytes += size
        self.peak = max(self.peak, self._bytes)
