"""What one step told an adversary."""

from dataclasses import astuple, dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


@dataclass(frozen=True)
class Step:
    """What one step says and was worth, [T] float64 each; the names are the transcript's.

    ratios: lambda, the log-likelihood ratio of D to D'; sensitivities |g - g'|; noise_stds sigma;
    present_norms |g|; absent_norms |g'|.
    """

    ratios: Tensor
    sensitivities: Tensor
    noise_stds: Tensor
    present_norms: Tensor
    absent_norms: Tensor

    @classmethod
    def join(cls, steps: "list[Self]") -> dict[str, npt.NDArray[np.float64]]:
        """Return the steps of a run as named arrays [T, k]."""
        columns = zip(*(astuple(step) for step in steps), strict=True)
        names = cls.__dataclass_fields__
        return {
            name: torch.stack(column, dim=1).numpy()
            for name, column in zip(names, columns, strict=True)
        }
