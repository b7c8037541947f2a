"""The device of the tensors, the threads that work on them, and their precision."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import numpy.typing as npt
import torch
from torch import Tensor

from adversaries.errors import InputError


def resolve(name: str) -> torch.device:
    """Return the device "auto" (CUDA where there is one), "cpu" or "cuda"; else InputError."""
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError(
            "run.device is cuda, but torch finds no CUDA device; set it to auto or cpu"
        )
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        _repeatable()
    return torch.device(name)


def _repeatable() -> None:
    """Make CUDA's libraries choose kernels with repeatable results, in full float32."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    _allow_tf32(False)


def threads(requested: int) -> int:
    """Return the number of threads for the trials of a batch; requested 0: one per core."""
    if requested:
        return requested
    if hasattr(os, "sched_getaffinity"):  # the cores of this process, if the system has such limits
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def single_threaded_kernels() -> None:
    """Make a kernel's sums independent of the machine, and of its number of threads."""
    torch.set_num_threads(1)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run kernels within the block on one thread, so that all machines compute the same bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def to_host(tensors: Mapping[str, Tensor]) -> dict[str, npt.NDArray[Any]]:
    """Return tensors as arrays, by one copy for each dtype: each makes the CPU wait for a GPU."""
    here = {name: each for name, each in tensors.items() if each.device.type == "cpu"}
    arrays = {name: tensor.numpy() for name, tensor in here.items()}
    there = {name: tensor for name, tensor in tensors.items() if name not in here}
    for dtype in {tensor.dtype for tensor in there.values()}:
        alike = {name: tensor for name, tensor in there.items() if tensor.dtype == dtype}
        flat = torch.cat([tensor.flatten() for tensor in alike.values()]).cpu()
        parts = flat.split([tensor.numel() for tensor in alike.values()])
        for (name, tensor), part in zip(alike.items(), parts, strict=True):
            arrays[name] = part.reshape(tensor.shape).numpy()
    return {name: arrays[name] for name in tensors}


Precision = Literal["float32", "tf32", "bf16"]
"""Precision of forward and backward passes. Clipping norms, sums and beliefs are never reduced."""


def check_precision(precision: Precision, device: torch.device) -> None:
    """Raise InputError for TF32 on another device than CUDA."""
    if precision == "tf32" and device.type != "cuda":
        raise InputError(
            "run.precision is tf32, which needs a CUDA device, but this run uses "
            f"{device.type}; choose float32 or bf16"
        )


@contextmanager
def reduced(precision: Precision, device: torch.device) -> Iterator[None]:
    """Run the block in a precision, and restore full float32 after it, also for convolutions."""
    if device.type == "cuda":
        _allow_tf32(precision == "tf32")
    try:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            yield
    finally:
        if device.type == "cuda":
            _allow_tf32(False)


def at_least_float32(x: torch.Tensor) -> torch.Tensor:
    """Return x in float32 if it has fewer bits, else unchanged."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _allow_tf32(allowed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
