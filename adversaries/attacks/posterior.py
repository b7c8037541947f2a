"""The posterior belief of the differential-identifiability adversary.

Bernau et al., Lemma 1 and Algorithm 1, and its form for Poisson-sampled steps. The adversary holds
two hypotheses about a Gaussian observation r: its mean is f(D) or f(D'), or a mixture where the
differing record takes part only with probability q. Values are log-odds in float64.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from adversaries.arrays import Floats


@dataclass(frozen=True)
class Hypotheses:
    """What the adversary keeps between a step and the aggregate that the step releases.

    g is the clipped gradient of x^, and g' of x^' (0 under add-remove). All tensors are float64.

    Attributes:
        directions: [H, T, P]; the scores are s_h = (<r, direction> - offset)/sigma^2. Where the
            record surely takes part, H = 1 and the direction is Delta = f(D) - f(D'). Else each
            score compares one record with none: H = 1 for x^ (add-remove), 2 for x^ and x^'
            (replace).
        offsets: [H, T].
        noise_std: [T], sigma of the noise that the adversary does not know.
        sampling_rate: q, the probability that the differing record takes part.
        draws: number of independent draws of the record: the steps of a sum over several.
        sensitivity: [T], |g - g'|.
        present_norm: [T], |g|.
        absent_norm: [T], |g'|.
    """

    directions: Tensor
    offsets: Tensor
    noise_std: Tensor
    sampling_rate: float
    draws: int
    sensitivity: Tensor
    present_norm: Tensor
    absent_norm: Tensor


def hypotheses(
    known: Tensor,
    present: Tensor,
    absent: Tensor | None,
    noise_std: Tensor,
    sampling_rate: float = 1.0,
    draws: int = 1,
) -> Hypotheses:
    """Return both hypotheses about the aggregate. All tensors are float64.

    Args:
        known: [T, P], the part of the aggregate that is the same in both worlds.
        present: [T, P], the clipped gradient of the target record.
        absent: [T, P], the clipped gradient of its replacement; None if there is none.
        noise_std: [T] or a scalar tensor, sigma of the noise that the adversary does not know.
        sampling_rate: the target record's q, in (0, 1].
        draws: number of draws of the target record; more than one needs q < 1 and no replacement.
    """
    difference = present if absent is None else present - absent
    if sampling_rate == 1:
        # The inner product with Delta does not cancel; a difference of two scores would.
        middle = known + (present if absent is None else present + absent) / 2
        directions = difference[None]
        offsets = torch.linalg.vecdot(middle, difference)[None]
    else:
        # log N(r; known + d) - log N(r; known) = <r - known - d/2, d>/sigma^2 for each gradient d.
        directions = present[None] if absent is None else torch.stack([present, absent])
        offsets = torch.stack(
            [torch.linalg.vecdot(known + direction / 2, direction) for direction in directions]
        )
    present_norm = present.norm(dim=-1)
    return Hypotheses(
        directions,
        offsets,
        noise_std.expand(present_norm.shape),
        sampling_rate,
        draws,
        difference.norm(dim=-1),
        present_norm,
        torch.zeros_like(present_norm) if absent is None else absent.norm(dim=-1),
    )


def log_likelihood_ratio(hypotheses: Hypotheses, aggregate: Tensor) -> Tensor:
    """Return lambda, the log-likelihood ratio of D to D', [T] float64.

    At q = 1 it is <r - (f(D) + f(D'))/2, Delta>/sigma^2. Else it is log(1 - q + q e^s) under
    add-remove, and the difference of two such terms under replace. A step with Delta = 0 gives 0.

    Args:
        hypotheses: of the step.
        aggregate: [T, P], r, the released noisy sum.
    """
    observed = aggregate.double()
    scores = [
        (torch.linalg.vecdot(observed, direction) - offset) / hypotheses.noise_std.pow(2)
        for direction, offset in zip(hypotheses.directions, hypotheses.offsets, strict=True)
    ]
    if hypotheses.draws > 1:
        lengths = hypotheses.present_norm / hypotheses.noise_std
        ratio = drawn_mixture(scores[0], lengths, hypotheses.sampling_rate, hypotheses.draws)
        return torch.where(hypotheses.sensitivity == 0, 0.0, ratio)
    return ratio_of_scores(scores, hypotheses.sampling_rate, hypotheses.sensitivity)


def ratio_of_scores(scores: list[Tensor], sampling_rate: float, sensitivity: Tensor) -> Tensor:
    """Return lambda [T] from the scores: evidence for D minus evidence for D'.

    Args:
        scores: one or two tensors [T], s of x^ and of x^'.
        sampling_rate: q, in (0, 1].
        sensitivity: [T], |Delta|; where it is 0, lambda is 0 for any scores.
    """
    mixtures = [mixture(score, sampling_rate) for score in scores]
    # Both mixtures are relative to the world without any record, which cancels in the difference.
    ratio = mixtures[0] if len(mixtures) == 1 else mixtures[0] - mixtures[1]
    # Equal gradients are no evidence, even where the division by a noise of 0 gave NaN.
    return torch.where(sensitivity == 0, 0.0, ratio)


def mixture(score: Tensor, sampling_rate: float) -> Tensor:
    """Return log(1 - q + q e^s): a score for a record that takes part with probability q.

    Args:
        score: s, of any shape.
        sampling_rate: q, in (0, 1].
    """
    if sampling_rate == 1:
        return score
    # In log space, since e^s overflows for sure beliefs.
    without = torch.full_like(score, math.log1p(-sampling_rate))
    return torch.logaddexp(without, math.log(sampling_rate) + score)


def drawn_mixture(score: Tensor, length: Tensor, sampling_rate: float, draws: int) -> Tensor:
    """Return log sum_k Bin(k; L, q) e^(k s - k (k - 1) |g|^2 / 2 sigma^2), [T].

    Args:
        score: s of the record once, [T].
        length: |g| / sigma, [T].
        sampling_rate: q, in (0, 1).
        draws: L.
    """
    times = torch.arange(draws + 1, dtype=torch.float64, device=score.device)
    # log Bin(k; L, q) by log-gamma: the coefficients themselves overflow for many draws.
    chosen = math.lgamma(draws + 1) - torch.lgamma(times + 1) - torch.lgamma(draws - times + 1)
    chances = (
        chosen + times * math.log(sampling_rate) + (draws - times) * math.log1p(-sampling_rate)
    )
    # k draws shift the mean by k g: the exponent is k <r, g> - k^2 |g|^2/2, over sigma^2.
    worth = times * score[:, None] - times * (times - 1) / 2 * length[:, None].square()
    return torch.logsumexp(chances + worth, dim=1)


def ratio_without_noise(
    drawn: Tensor,
    present_norm: Tensor,
    absent_norm: Tensor,
    sensitivity: Tensor,
    sampling_rate: float,
) -> Tensor:
    """Return lambda [T] of an observer that sees the target's contribution without noise.

    It is +inf where only D can have sent it and -inf where only D' can. Otherwise it is finite:
    log(1 - q) where a record that D would have added with probability q is missing, 0 where g = g'.

    Args:
        drawn: int [T], 0 where neither gradient is in the sum, 1 for g, 2 for g'.
        present_norm: float64 [T], |g|.
        absent_norm: float64 [T], |g'|, 0 under add-remove.
        sensitivity: float64 [T], |g - g'|.
        sampling_rate: q, in (0, 1].
    """

    def like(kind: int, apart: dict[int, Tensor]) -> Tensor:
        # Two hypotheses that send the same vector fit what was drawn equally well.
        same = drawn == kind
        for other, distance in apart.items():
            same = same | ((drawn == other) & (distance == 0))
        return same.double()

    # The probability of what was drawn, by world: the record is left out, or sends its gradient.
    nothing = (1 - sampling_rate) * like(0, {1: present_norm, 2: absent_norm})
    under_d = nothing + sampling_rate * like(1, {0: present_norm, 2: sensitivity})
    under_d_prime = nothing + sampling_rate * like(2, {0: absent_norm, 1: sensitivity})
    return torch.where(sensitivity == 0, 0.0, under_d.log() - under_d_prime.log())


def log_odds(ratios: Floats) -> Floats:
    """Return the log-odds for D after every step, from even odds, [T, k].

    Args:
        ratios: float64 [T, k], the log-likelihood ratios of the steps.
    """
    return np.cumsum(ratios, axis=1)
