"""A batch of trials as a task for a worker, what comes back, and the program that must run it."""

import hashlib
import os
import platform
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

import adversaries
import fedsim
from adversaries.errors import InputError
from fedsim.config import Scalar
from fedsim.federation.runs.run_directory import Arrays
from fedsim.federation.server.plan import Plan
from fedsim.game import federation

HOW_TO_MEND = {
    "data": "put the same files at the same paths",
    "device": "results are equal to the bit on one kind of device alone; use workers of one kind",
}


@dataclass(frozen=True)
class Program:
    """What the bits of a result depend on beside the configuration.

    Attributes:
        fedsim: the version, with the beginning of the SHA-256 of the sources.
        torch: the version.
        numpy: the version.
        device: the kind, with the instructions of a CPU or the name of a GPU.
        data: the SHA-256 of what the clients hold.
    """

    fedsim: str
    torch: str
    numpy: str
    device: str
    data: str

    @classmethod
    def here(cls, plan: Plan) -> Self:
        """Return the program of this process, and the data that it finds for a run."""
        config = plan.config
        digest = hashlib.sha256()
        for client in range(config.federation.clients):
            digest.update(federation.digest(config, client).encode())
        return cls(
            f"{fedsim.__version__} ({_sources()[:8]})",
            torch.__version__,
            np.__version__,
            _kind(federation.load(config).device),
            digest.hexdigest()[:16],
        )

    def check(self, expected: Mapping[str, str]) -> None:
        """Raise InputError, with the name of this worker, unless this is the expected program."""
        for what, own in asdict(self).items():
            if own != expected.get(what):
                mend = HOW_TO_MEND.get(what, f"install the same {what} there")
                raise InputError(
                    f"worker {worker()} has {what} {own}, and the process that runs the campaign "
                    f"{expected.get(what)}; {mend}"
                )


@dataclass(frozen=True)
class Task:
    """A batch of trials for a worker: plain values, which other versions can read and refuse.

    Attributes:
        run_config: the configuration, as Flower's run config.
        program: of the process that runs the campaign.
        challenge: the target, and who plays which part.
        nodes: the Flower node of each partition.
        noise_multiplier: nominal.
        rounds: how many every trial has.
        first: the first trial.
        worlds: which trials train on D, bool [T].
    """

    run_config: dict[str, Scalar]
    program: dict[str, str]
    challenge: dict[str, Any]
    nodes: dict[int, int]
    noise_multiplier: float
    rounds: int
    first: int
    worlds: npt.NDArray[np.bool_]

    @property
    def trials(self) -> range:
        """The trials of the batch."""
        return range(self.first, self.first + len(self.worlds))


@dataclass(frozen=True)
class Done:
    """What a worker found.

    Attributes:
        findings: of the batch, as its file has them.
        events: what would have been noted of its rounds, in their order.
    """

    findings: Arrays
    events: list[dict[str, Any]] = field(default_factory=list)


def worker() -> str:
    """Return the name of this process: its machine and number."""
    return f"{socket.gethostname()}:{os.getpid()}"


@cache
def _sources() -> str:
    """Return the SHA-256 of the sources that run here, in hexadecimal."""
    digest = hashlib.sha256()
    for package in (adversaries, fedsim):
        folder = Path(str(package.__file__)).parent
        for path in sorted(folder.rglob("*.py")):
            digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()


def _kind(device: torch.device) -> str:
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    # Kernels are chosen, and sums ordered, by the instructions that a CPU has.
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{device.type} ({platform.machine()}, {capability})"
