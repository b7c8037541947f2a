"""Beliefs at several vantages, computed from the noise by an auditor that receives it.

r minus the part common to both worlds is noise, and perhaps one gradient, so the auditor needs no
second training. This measures the mechanism, and is never part of it.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from fedsim.game.mechanisms.step import Step, UnknownNoise
from fedsim.game.observers.question import Question
from fedsim.privacy.trust import Vantage


def measure(
    present: Tensor,
    absent: Tensor | None,
    noises: Iterable[tuple[int, Tensor]],
    worlds: Tensor,
    participation: Tensor | None,
    unknowns: Mapping[Vantage, UnknownNoise],
    sampling_rate: float,
) -> dict[Vantage, Step]:
    """Return what each vantage would conclude from r = rest + B (b g + (1 - b) g') + w.

    The rest is known, so that the question is about the target's part with the unknown noise w.

    present: g, the clipped gradient of the target record, float64 [T, P].
    absent: g', of its replacement, float64 [T, P]; None without one.
    noises: parts of the noise by source, float64 [T, P]; each is read once, one after another.
    worlds: b, bool [T].
    participation: B, bool [T]; None if the record surely takes part.
    Raises ValueError if the noise of a vantage's source is missing, disclosed twice, or not [T, P].
    """
    replacement = torch.zeros_like(present) if absent is None else absent
    sent = torch.where(worlds[:, None], present, replacement)
    if participation is not None:
        sent = sent * participation[:, None]
    seen = {vantage: sent.clone() for vantage in unknowns}
    disclosed = set()
    for source, noise in noises:
        if source in disclosed or noise.shape != present.shape:
            raise ValueError(
                f"the noise of source {source} has shape {list(noise.shape)}, or was sent twice"
            )
        disclosed.add(source)
        for vantage, unknown in unknowns.items():
            if source in unknown.sources:
                seen[vantage] += noise
    for vantage, unknown in unknowns.items():
        # Without this noise, the belief would be more certain than it may be.
        if undisclosed := sorted(unknown.sources - disclosed):
            raise ValueError(
                f"the noise of {undisclosed}, which hides the target from {vantage}, was not "
                "disclosed"
            )
    known = present.new_zeros(())
    return {
        vantage: Question(
            known, present, absent, unknown.noise_std, sampling_rate, rounding=0.0
        ).answer(seen[vantage])
        for vantage, unknown in unknowns.items()
    }


def nothing(noise_std: Tensor) -> Step:
    """Return a step without information, for a round that the record's client missed."""
    zero = torch.zeros_like(noise_std)
    return Step(zero, zero, noise_std, zero, zero)
