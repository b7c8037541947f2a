"""Beliefs at several vantages, computed from the noise by an auditor that receives it.

r minus the part common to both worlds is noise, and perhaps one gradient, so the auditor needs no
second training. This measures the mechanism, and is never part of it.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from adversaries.attacks.posterior import ratio_of_scores, ratio_without_noise
from fedsim.game.mechanisms.step import Step, UnknownNoise
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

    At q = 1, lambda = ((b - 1/2) |g - g'|^2 + <w, g - g'>)/sigma^2. Otherwise it is the mixture of
    the posterior, with s = (B <b g + (1 - b) g', g> + <w, g> - |g|^2/2)/sigma^2 and the same for
    g'. Without any w the contribution itself is visible, and the ratio may be infinite.

    present: g, the clipped gradient of the target record, float64 [T, P].
    absent: g', of its replacement, float64 [T, P]; None without one.
    noises: parts of the noise by source, float64 [T, P]; each is read once, one after another.
    worlds: b, bool [T].
    participation: B, bool [T]; None if the record surely takes part.
    Raises ValueError if the noise of a vantage's source is missing, disclosed twice, or not [T, P].
    """
    difference = present if absent is None else present - absent
    sensitivity, present_norm = _norm(difference), _norm(present)
    absent_norm = torch.zeros_like(present_norm) if absent is None else _norm(absent)
    taking_part = torch.ones_like(worlds) if participation is None else participation
    # Parts of the scores from the target alone: along g - g', or along g and along g'.
    if sampling_rate == 1:
        directions, signals = [difference], [(worlds.double() - 0.5) * sensitivity**2]
    else:
        # <what was drawn, g> - |g|^2/2: g adds |g|^2, g' adds <g', g>, and a missing record adds 0.
        with_present, with_absent = taking_part & worlds, taking_part & ~worlds
        directions, signals = [present], [(with_present.double() - 0.5) * present_norm**2]
        if absent is not None:
            both = _inner(present, absent)
            directions.append(absent)
            signals[0] = signals[0] + with_absent * both
            signals.append(with_present * both + (with_absent.double() - 0.5) * absent_norm**2)
    heard = _with_noise(signals, directions, noises, unknowns)

    def concluded(vantage: Vantage, unknown: UnknownNoise) -> Step:
        if unknown.sources:
            scores = [signal / unknown.noise_std**2 for signal in heard[vantage]]
            ratios = ratio_of_scores(scores, sampling_rate, sensitivity)
        else:
            # Without a replacement g' is 0, which `ratio_without_noise` takes for a missing record.
            drawn = taking_part * torch.where(worlds, 1, 2)
            ratios = ratio_without_noise(
                drawn, present_norm, absent_norm, sensitivity, sampling_rate
            )
        return Step(ratios, sensitivity, unknown.noise_std, present_norm, absent_norm)

    return {vantage: concluded(vantage, unknown) for vantage, unknown in unknowns.items()}


def _with_noise(
    signals: list[Tensor],
    directions: list[Tensor],
    noises: Iterable[tuple[int, Tensor]],
    unknowns: Mapping[Vantage, UnknownNoise],
) -> dict[Vantage, list[Tensor]]:
    """Return each vantage's signals [T], plus its unknown noise along their directions [T, P]."""
    heard = {vantage: list(signals) for vantage in unknowns}
    disclosed = set()
    for source, noise in noises:
        if source in disclosed or noise.shape != directions[0].shape:
            raise ValueError(
                f"the noise of source {source} has shape {list(noise.shape)}, or was sent twice"
            )
        disclosed.add(source)
        listening = [vantage for vantage, unknown in unknowns.items() if source in unknown.sources]
        parts = [_inner(noise, direction) for direction in directions if listening]
        for vantage in listening:
            heard[vantage] = [s + part for s, part in zip(heard[vantage], parts, strict=True)]
    for vantage, unknown in unknowns.items():
        # Without this noise, the belief would be more certain than it may be.
        if undisclosed := sorted(unknown.sources - disclosed):
            raise ValueError(
                f"the noise of {undisclosed}, which hides the target from {vantage}, was not "
                "disclosed"
            )
    return heard


def nothing(noise_std: Tensor) -> Step:
    """Return a step without information, for a round that the record's client missed."""
    zero = torch.zeros_like(noise_std)
    return Step(zero, zero, noise_std, zero, zero)


def _inner(left: Tensor, right: Tensor) -> Tensor:
    return torch.einsum("tp,tp->t", left, right)


def _norm(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows, dim=-1)
