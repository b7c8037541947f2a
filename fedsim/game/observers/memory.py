"""What the adversary at a client remembers between messages, and what it finds in the end."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adversaries.attacks.posterior import Hypotheses


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What the adversary remembers between rounds, in arrays that fit its Flower state.

    A history is float64 [T, i], a column for each aggregate seen so far; statistics of the
    residuals are those of `adversaries.attacks.residuals.Residual`. After local steps, whose
    aggregate has no known law, `known` and `past` are None, `present_norms` are |Delta| and
    `absent_norms` 0.

    Attributes:
        pending: the hypotheses about the aggregate of the current round.
        known: float32 [T, P], what that aggregate contains in both worlds but for their directions.
        past: float32 [T, P], the sum of the residuals before it; None where there are none.
        batch: float64 [T], how many of the other records take part in it; None if all do.
        ratios: history of the log-likelihood ratios of D to D'.
        sensitivities: history of |g - g'|.
        noise_stds: history of sigma.
        present_norms: history of |g|.
        absent_norms: history of |g'|.
        batch_sizes: history of `batch`, 0 without sampling.
        residual_squares: history of `Residual.squares`.
        residual_freedoms: history of `Residual.freedoms`.
        residual_repeats: history of `Residual.repeats`.
        residual_scales: history of `Residual.scales`.
        residual_signals: history of `Residual.signals`.
        residual_shapes: history of `Residual.shapes`.
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
        """Return the memory of an adversary that has seen nothing."""
        column = torch.empty(trials, 0, dtype=torch.float64)
        return cls(
            pending=None, known=None, past=None, batch=None, **dict.fromkeys(HISTORY, column)
        )

    def to_arrays(self) -> dict[str, npt.NDArray[np.floating[Any]]]:
        """Return the memory as named arrays."""
        arrays = {name: getattr(self, name).cpu().numpy() for name in HISTORY}
        for name in BETWEEN:
            if (kept := getattr(self, name)) is not None:
                arrays[BETWEEN_ROUNDS + name] = kept.cpu().numpy()
        if self.pending is not None:
            for field in fields(Hypotheses):
                value = getattr(self.pending, field.name)
                array = value.cpu().numpy() if isinstance(value, Tensor) else np.asarray([value])
                arrays[PENDING + field.name] = array
        return {name.replace("_", "-"): array for name, array in arrays.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], device: torch.device) -> "Memory":
        """Return the memory of named arrays, the inverse of `to_arrays`.

        device: where the hypotheses go.
        Raises KeyError if an array is missing.
        """
        tensors = {name.replace("-", "_"): torch.tensor(array) for name, array in arrays.items()}
        pending = None
        if any(name.startswith(PENDING) for name in tensors):
            values: dict[str, Any] = {
                field.name: tensors[PENDING + field.name].to(device) for field in fields(Hypotheses)
            }
            values["sampling_rate"] = float(values["sampling_rate"])
            values["draws"] = int(values["draws"])
            pending = Hypotheses(**values)
        known, past, batch = (
            tensors[BETWEEN_ROUNDS + name].to(device) if BETWEEN_ROUNDS + name in tensors else None
            for name in BETWEEN
        )
        history = {name: tensors[name] for name in HISTORY}
        return cls(pending=pending, known=known, past=past, batch=batch, **history)


BETWEEN = ("known", "past", "batch")
"""What is kept from a round to the next beside the hypotheses."""

HISTORY = tuple(field.name for field in fields(Memory) if field.name not in ("pending", *BETWEEN))
"""The arrays that grow by a column with every aggregate."""

BETWEEN_ROUNDS = "between_"
"""What their names begin with."""

LOSS_TRAJECTORY, POPULATION_LOSSES = "loss-trajectory", "population-losses"
"""The challenge's losses [T, k + 1] at all global models, and those of non-members [T, h]."""

POISON_SCORES = "poison-scores"
"""What a crafted record does to the final model, [T]."""

MEMBERSHIP = (
    "true-positive-rate",
    "false-positive-rate",
    "challenge-is-member",
    "challenge-loss",
    POPULATION_LOSSES,
)
"""What `infer_membership` returns."""

POPULATION = 64
"""How many non-members at most: the standard error of a share of them is 1/16."""

PENDING = "pending_"
"""What the names of the hypotheses' arrays begin with."""
