"""The posterior belief of the differential-identifiability adversary.

Bernau et al., Lemma 1 and Algorithm 1.

In each step the adversary holds two hypotheses about a Gaussian observation r: its mean is f(D) or
f(D'). Everything is kept as log-odds in float64: they never saturate, and the empirical epsilon of
a belief is the log-odds themselves.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


@dataclass(frozen=True)
class Hypotheses:
    """What the adversary keeps between a step and the aggregate that the step releases.

    direction [T, P]: Delta = f(D) - f(D'); offset [T]: <(f(D) + f(D'))/2, Delta>;
    noise_std [T]: sigma of the noise that it does not know. All float64.
    """

    direction: Tensor
    offset: Tensor
    noise_std: Tensor

    @property
    def sensitivity(self) -> Tensor:
        """The local sensitivity |Delta| of this step, [T]."""
        return self.direction.norm(dim=-1)


def hypotheses(known: Tensor, present: Tensor, absent: Tensor, noise_std: Tensor) -> Hypotheses:
    """Return both hypotheses about the aggregate.

    known [T, P]: what the aggregate contains in both worlds, the adversary's own message included;
    present [T, P]: the clipped gradient of the challenge record; absent [T, P]: that of its
    replacement, or zeros; noise_std [T] or a scalar tensor. All float64.
    """
    direction = present - absent
    middle = known + (present + absent) / 2
    offset = torch.linalg.vecdot(middle, direction)
    return Hypotheses(direction, offset, noise_std.expand(offset.shape))


def log_likelihood_ratio(hypotheses: Hypotheses, aggregate: Tensor) -> Tensor:
    """Return lambda = <r - (f(D) + f(D'))/2, Delta> / sigma^2, [T] float64.

    aggregate [T, P] is r, the released noisy sum. A step whose Delta is 0 says nothing: 0.
    """
    signal = torch.linalg.vecdot(aggregate.double(), hypotheses.direction) - hypotheses.offset
    silent = hypotheses.sensitivity == 0
    return torch.where(silent, 0.0, signal / hypotheses.noise_std.pow(2))


def log_odds(prior: float, ratios: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the log-odds for D after every step, [T, k], from the ratios [T, k] of the steps."""
    return np.log(prior / (1 - prior)) + np.cumsum(ratios, axis=1)
