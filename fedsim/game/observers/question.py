"""What every observer asks of a release: is its mean f(D) or f(D')?"""

from dataclasses import dataclass

import torch
from torch import Tensor

from adversaries.attacks.posterior import (
    Hypotheses,
    hypotheses,
    log_likelihood_ratio,
    ratio_without_noise,
)
from fedsim.game.mechanisms.step import Step

ROUNDING = 1e-5
"""Share of a clean float32 sum below which a difference may be rounding, and is no evidence."""


@dataclass(frozen=True)
class Question:
    """An observer's knowledge of one release; all tensors are float64.

    Attributes:
        known: [T, P], or 0, the part that both worlds share.
        present: g, [T, P], the target's part under D.
        absent: g', [T, P], of its replacement under D'; None without one.
        noise_std: [T] or a scalar, sigma of the noise that the observer does not know; 0: none.
        rate: q, the probability that the target takes part.
        draws: number of draws of the target, if the release is a sum over several steps.
        rounding: share of the release below which a difference is no evidence without noise.
    """

    known: Tensor
    present: Tensor
    absent: Tensor | None
    noise_std: Tensor
    rate: float = 1.0
    draws: int = 1
    rounding: float = ROUNDING

    @property
    def hypotheses(self) -> Hypotheses:
        """What the observer has to keep until the release."""
        return hypotheses(
            self.known, self.present, self.absent, self.noise_std, self.rate, self.draws
        )

    def answer(self, released: Tensor) -> Step:
        """Return the evidence of the release [T, P]."""
        expected = self.hypotheses
        if bool(expected.noise_std.any()):
            ratios = log_likelihood_ratio(expected, released)
        else:
            # The target's contribution itself is visible, up to the rounding of the sum.
            observed = released.double()
            distinguishable = expected.sensitivity > self.rounding * observed.norm(dim=-1)
            ratios = ratio_without_noise(
                self._nearest(observed - self.known),
                expected.present_norm,
                expected.absent_norm,
                expected.sensitivity * distinguishable,
                self.rate,
            )
        norms = expected.present_norm, expected.absent_norm
        return Step(ratios, expected.sensitivity, expected.noise_std, *norms)

    def _nearest(self, rest: Tensor) -> Tensor:
        """Return which of nothing (0), g (1) and g' (2) is nearest to a clean rest, int [T]."""
        absent = 0.0 if self.absent is None else self.absent
        gaps = [rest.norm(dim=-1), *((rest - each).norm(dim=-1) for each in (self.present, absent))]
        # A record that surely takes part leaves g or g'.
        if self.rate == 1:
            return 1 + torch.stack(gaps[1:]).argmin(dim=0)
        return torch.stack(gaps).argmin(dim=0)
