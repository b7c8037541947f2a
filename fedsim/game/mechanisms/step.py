"""What an adversary learns from one step, and the noise that it does not know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from torch import Tensor

from adversaries.arrays import Floats

Learnt = Mapping[str, Floats]
"""Values [T] that an adversary learns from a round: the fields of `Step`, by name."""


@dataclass(frozen=True)
class Step:
    """A step's lambda, |g - g'|, sigma, |g| and |g'|, [T] float64, by names of the transcript."""

    ratios: Tensor
    sensitivities: Tensor
    noise_stds: Tensor
    present_norms: Tensor
    absent_norms: Tensor

    def on_cpu(self) -> "Step":
        return Step(*(getattr(self, each.name).cpu() for each in fields(self)))

    @property
    def learnt(self) -> Learnt:
        """The results by name, as arrays."""
        return {each.name: getattr(self, each.name).cpu().numpy() for each in fields(self)}


def join(rounds: Sequence[Learnt]) -> dict[str, Floats]:
    """Return the results of a run's rounds as named arrays [T, k]."""
    return {name: np.stack([learnt[name] for learnt in rounds], axis=1) for name in rounds[0]}


@dataclass(frozen=True)
class UnknownNoise:
    """The noise of sources that one vantage cannot remove, with its sigma [T]; 0: none."""

    sources: frozenset[int]
    noise_std: Tensor
