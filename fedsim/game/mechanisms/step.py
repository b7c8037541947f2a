"""What an adversary learns from one step."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from torch import Tensor

from fedsim.privacy.noise.mechanism import Floats, Learnt


@dataclass(frozen=True)
class Step:
    """What one step says and was worth, [T] float64 each; the names are the transcript's.

    Attributes:
        ratios: lambda, the log-likelihood ratio of D to D'.
        sensitivities: |g - g'|.
        noise_stds: sigma.
        present_norms: |g|.
        absent_norms: |g'|.
    """

    ratios: Tensor
    sensitivities: Tensor
    noise_stds: Tensor
    present_norms: Tensor
    absent_norms: Tensor

    @property
    def learnt(self) -> Learnt:
        """The same by name, as arrays."""
        return {each.name: getattr(self, each.name).cpu().numpy() for each in fields(self)}


def join(rounds: Sequence[Learnt]) -> dict[str, Floats]:
    """Return what was learnt over the rounds of a run as named arrays [T, k]."""
    return {name: np.stack([learnt[name] for learnt in rounds], axis=1) for name in rounds[0]}


@dataclass(frozen=True)
class UnknownNoise:
    """What one vantage point cannot see through.

    Attributes:
        sources: whose noise, by the keys of the noises.
        noise_std: [T] float64, sigma of their sum; 0 for a vantage that sees the sums as they are.
    """

    sources: frozenset[int]
    noise_std: Tensor
