"""The memory of the adversary at a client, between messages and at the end."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adversaries.attacks.posterior import Hypotheses
from fedsim.common.device import to_host


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The adversary's memory between rounds, as arrays that fit its Flower state.

    A history is float64 [T, i], with a column for each aggregate so far; those of residuals are as
    in `adversaries.attacks.residuals.Residual`. After local steps the law of the aggregate is
    unknown: `known` and `past` are None, `present_norms` are |Delta| and `absent_norms` 0.

    Attributes:
        known: float32 [T, P], the part of that aggregate that both worlds share.
        past: float32 [T, P], sum of the earlier residuals; None without any.
        batch: float64 [T], number of other records that take part in it; None if all do.
    """

    pending: Hypotheses | None
    known: Tensor | None
    past: Tensor | None
    batch: Tensor | None
    ratios: Tensor
    sensitivities: Tensor
    noise_stds: Tensor
    present_norms: Tensor
    absent_norms: Tensor
    batch_sizes: Tensor
    residual_squares: Tensor
    residual_freedoms: Tensor
    residual_repeats: Tensor
    residual_scales: Tensor
    residual_signals: Tensor
    residual_shapes: Tensor

    @classmethod
    def empty(cls, trials: int) -> "Memory":
        column = torch.empty(trials, 0, dtype=torch.float64)
        return cls(
            pending=None, known=None, past=None, batch=None, **dict.fromkeys(HISTORY, column)
        )

    def to_arrays(self) -> dict[str, npt.NDArray[np.floating[Any]]]:
        """Return the memory as named arrays."""
        tensors = {name: getattr(self, name) for name in HISTORY}
        for name in BETWEEN:
            if (kept := getattr(self, name)) is not None:
                tensors[BETWEEN_ROUNDS + name] = kept
        if self.pending is not None:
            for field in fields(Hypotheses):
                value = getattr(self.pending, field.name)
                if not isinstance(value, Tensor):
                    value = torch.from_numpy(np.asarray([value]))
                tensors[PENDING + field.name] = value
        return {name.replace("_", "-"): each for name, each in to_host(tensors).items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], device: torch.device) -> "Memory":
        """Return the memory of named arrays, the inverse of `to_arrays`."""
        tensors = {name.replace("-", "_"): torch.tensor(array) for name, array in arrays.items()}
        pending = None
        if any(name.startswith(PENDING) for name in tensors):
            values: dict[str, Any] = {
                field.name: tensors[PENDING + field.name] for field in fields(Hypotheses)
            }
            numbers: dict[str, Any] = {
                "sampling_rate": float(values.pop("sampling_rate")),
                "draws": int(values.pop("draws")),
            }
            values = {name: each.to(device, non_blocking=True) for name, each in values.items()}
            pending = Hypotheses(**values, **numbers)
        known, past, batch = (
            tensors[BETWEEN_ROUNDS + name].to(device, non_blocking=True)
            if BETWEEN_ROUNDS + name in tensors
            else None
            for name in BETWEEN
        )
        history = {name: tensors[name] for name in HISTORY}
        return cls(pending=pending, known=known, past=past, batch=batch, **history)


BETWEEN = ("known", "past", "batch")
"""Values kept between rounds beside the hypotheses."""

HISTORY = tuple(field.name for field in fields(Memory) if field.name not in ("pending", *BETWEEN))
"""Arrays that grow by a column with every aggregate."""

BETWEEN_ROUNDS = "between_"
"""Prefix of their names."""

POPULATION_LOSSES = "population-losses"
"""Losses [T, h] of non-members."""

POISON_SCORES = "poison-scores"
"""Effect of a crafted record on the final model, [T]."""

MEMBERSHIP = (
    "true-positive-rate",
    "false-positive-rate",
    "challenge-is-member",
    "challenge-loss",
    POPULATION_LOSSES,
)
"""Results of `infer_membership`."""

POPULATION = 64
"""Most non-members: the standard error of a share of them is then 1/16."""

PENDING = "pending_"
"""Prefix of the names of the hypotheses' arrays."""
