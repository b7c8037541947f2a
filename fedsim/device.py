"""Where the tensors live, and how many threads work on them."""

import os

import torch

from fedsim.errors import InputError


def resolve(name: str) -> torch.device:
    """Return the device for `auto`, `cpu` or `cuda`. Raises InputError without CUDA."""
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError(
            "run.device is cuda, but torch finds no CUDA device; use --device auto or --device cpu"
        )
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def threads(requested: int) -> int:
    """Return the number of threads that share the trials of a cohort; 0 asks for one per core."""
    if hasattr(os, "sched_getaffinity"):  # what this process may use, where the system says so
        return requested or len(os.sched_getaffinity(0))
    return requested or os.cpu_count() or 1


def single_threaded_kernels() -> None:
    """Make a kernel's sums independent of the machine.

    PyTorch splits a sum over its threads, so that a result depends on how many there are, and Ray
    gives its workers fewer than a shell has. fedsim runs kernels on one thread each and spreads
    trials over threads instead.
    """
    torch.set_num_threads(1)
