"""The state of a training in a file, from which a restarted server continues."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from flwr.app import ArrayRecord
from torch import Tensor

from fedsim.federation.runs.run_directory import Arrays, RunDirectory

FILE = "checkpoint.npz"

OPTIMIZER = "optimizer_"
"""Prefix of the names of the optimiser's arrays."""


@dataclass(frozen=True)
class RoundRelease:
    """The release of a round, which the next message brings to clients, and more to auditors."""

    aggregate: npt.NDArray[np.float32]
    participants: tuple[int, ...]
    disclosed: ArrayRecord | None
    messages: ArrayRecord | None = None


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A training after one of its rounds, from 1, with its model, float32 [1, P], and release."""

    round: int
    model: npt.NDArray[np.float32]
    release: RoundRelease
    optimizer: Mapping[str, Tensor]


def write_checkpoint(directory: RunDirectory, checkpoint: Checkpoint) -> None:
    """Write a checkpoint in place of the previous one."""
    arrays: Arrays = {
        "round": np.asarray(checkpoint.round),
        "run": np.frombuffer(directory.identity.encode(), dtype=np.uint8),
        "model": checkpoint.model,
        "aggregate": checkpoint.release.aggregate,
        "participants": np.asarray(checkpoint.release.participants, dtype=np.int64),
    }
    for name, state in checkpoint.optimizer.items():
        arrays[f"{OPTIMIZER}{name}"] = state.cpu().numpy()
    directory.write_arrays(FILE, arrays)


def read_checkpoint(directory: RunDirectory) -> Checkpoint | None:
    """Return the state from which a training continues; None: from the beginning.

    Raises InputError if the file is damaged, or of another run.
    """
    if not directory.has(FILE):
        return None
    arrays = directory.read_arrays(FILE)
    with directory.reading(FILE):
        if arrays["run"].tobytes().decode("ascii") != directory.identity:
            raise ValueError("it belongs to another run")
        model, aggregate = arrays["model"], arrays["aggregate"]
        if model.shape != aggregate.shape or model.ndim != 2 or model.dtype != np.float32:
            raise ValueError(
                f"its model has the shape {list(model.shape)} and the type {model.dtype}"
            )
        optimizer = {
            name.removeprefix(OPTIMIZER): torch.from_numpy(array)
            for name, array in arrays.items()
            if name.startswith(OPTIMIZER)
        }
        participants = tuple(arrays["participants"].tolist())
        return Checkpoint(
            int(arrays["round"]), model, RoundRelease(aggregate, participants, None), optimizer
        )
