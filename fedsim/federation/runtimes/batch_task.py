"""A worker's task and result, and the program that a worker must have."""

import hashlib
import os
import platform
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

import adversaries
import fedsim
from adversaries.arrays import Bools
from adversaries.errors import InputError
from fedsim.common import device, memory
from fedsim.common.private_files import NO_ROOM
from fedsim.configuration import Scalar
from fedsim.configuration.campaign import RunConfig
from fedsim.configuration.objects import Experiment
from fedsim.federation.runs.run_directory import Arrays
from fedsim.game import federation

HOW_TO_MEND = {
    "data": "put the same files at the same paths",
    "device": "use workers with one kind of device, since results differ between kinds",
}


ONE_AT_A_TIME = threading.Lock()
"""A Dask worker may have several threads, but Flower's task and torch's settings are global."""


@dataclass(frozen=True)
class Program:
    """The program and data that determine the bits of a result, beside the configuration.

    Attributes:
        fedsim: version, with the beginning of the SHA-256 of the sources.
        torch: version.
        numpy: version.
        device: kind of device, with the instructions of a CPU or the name of a GPU.
        data: SHA-256 of the clients' data.
    """

    fedsim: str
    torch: str
    numpy: str
    device: str
    data: str

    @classmethod
    def here(cls, experiment: Experiment | None = None) -> Self:
        """Return the program of this process, with the data of a run, or with none."""
        digest, where = hashlib.sha256(), device.resolve("auto")
        if experiment is not None:
            where = federation.load(experiment).device
            for client in range(experiment.game.scheme.federation.clients):
                digest.update(federation.digest(experiment, client).encode())
        return cls(
            f"{fedsim.__version__} ({_sources()[:8]})",
            torch.__version__,
            np.__version__,
            _kind(where),
            digest.hexdigest()[:16],
        )

    def check(self, expected: Mapping[str, str]) -> None:
        """Raise InputError, with this worker's name, unless this is the expected program."""
        for what, own in asdict(self).items():
            if own != expected.get(what):
                mend = HOW_TO_MEND.get(what, f"install the same {what} there")
                raise InputError(
                    f"worker {worker()} has {what} {own}, but the process that runs the campaign "
                    f"has {expected.get(what)}; {mend}"
                )


@dataclass(frozen=True)
class BatchTask:
    """A batch of trials for a worker, in plain values that another version can read and refuse.

    Attributes:
        run_config: the configuration, as Flower's run config.
        program: the program of the process that runs the campaign.
        challenge: the target, and the clients' roles.
        nodes: the Flower node of each partition.
        noise_multiplier: the nominal noise multiplier.
        rounds: number of rounds of every trial.
        first: first trial of the batch.
        worlds: whether each trial trains on D, bool [T].
    """

    run_config: dict[str, Scalar]
    program: dict[str, str]
    challenge: dict[str, Any]
    nodes: dict[int, int]
    noise_multiplier: float
    rounds: int
    first: int
    worlds: Bools

    @property
    def trials(self) -> range:
        return range(self.first, self.first + len(self.worlds))


@dataclass(frozen=True)
class Done:
    """The result of a worker.

    Attributes:
        findings: the arrays of the batch's file.
        events: the events of its rounds, in order.
    """

    findings: Arrays
    events: list[dict[str, Any]] = field(default_factory=list)


def take_share(run: RunConfig) -> None:
    """Let this process use the threads and the memory that a worker's settings name."""
    device.grant(run.threads)
    memory.grant(run.memory_limit)


def worker() -> str:
    """Return the name of this process: its machine and process number."""
    return f"{socket.gethostname()}:{os.getpid()}"


@contextmanager
def full_disk() -> Iterator[None]:
    """Turn the error of this worker's full disk into an InputError that names the worker."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise InputError(
            f"the disk of worker {worker()} is full; make room in its {tempfile.gettempdir()}, and "
            "give the same command again"
        ) from None


@cache
def _sources() -> str:
    digest = hashlib.sha256()
    for package in (adversaries, fedsim):
        folder = Path(str(package.__file__)).parent
        for path in sorted(folder.rglob("*.py")):
            digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()


def _kind(where: torch.device) -> str:
    if where.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(where)})"
    # A CPU's instructions decide its kernels, and so the order of sums.
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{where.type} ({platform.machine()}, {capability})"
