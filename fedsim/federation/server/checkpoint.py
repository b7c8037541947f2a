"""The state of a training after a round, and its file, from which a restarted server continues."""

from collections.abc import Mapping
from dataclasses import dataclass, field

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
class Release:
    """The release of a round, which the next message brings to clients, and more to auditors."""

    aggregate: npt.NDArray[np.float32]
    participants: tuple[int, ...]
    disclosed: ArrayRecord | None = None
    messages: ArrayRecord | None = None


@dataclass(frozen=True, eq=False)
class State:
    """T trainings after one of their rounds; round 0 is before the first.

    Attributes:
        model: float32 [T, P].
        release: of this round; None before the first.
        optimizer: the memory of the server's optimiser.
    """

    round: int
    model: npt.NDArray[np.float32]
    release: Release | None = None
    optimizer: Mapping[str, Tensor] = field(default_factory=dict)


def write_checkpoint(directory: RunDirectory, state: State) -> None:
    """Write the state after a round in place of the previous one."""
    assert state.release is not None
    arrays: Arrays = {
        "round": np.asarray(state.round),
        "run": np.frombuffer(directory.identity.encode(), dtype=np.uint8),
        "model": state.model,
        "aggregate": state.release.aggregate,
        "participants": np.asarray(state.release.participants, dtype=np.int64),
    }
    for name, each in state.optimizer.items():
        arrays[f"{OPTIMIZER}{name}"] = each.cpu().numpy()
    directory.write_arrays(FILE, arrays)


def read_checkpoint(directory: RunDirectory) -> State | None:
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
        release = Release(aggregate, tuple(arrays["participants"].tolist()))
        return State(int(arrays["round"]), model, release, optimizer)
