"""Residuals: what remains of an aggregate when everything that the adversary knows is subtracted.

In all directions but one both worlds agree: r minus its expectation is N(0, sigma^2 I), where other
noise than claimed shows long before it shows in the belief. Every step has four statistics. Given
all earlier steps, each has a known law if the mechanism is as claimed, and so have their sums.
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy
import torch
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import bdtr, bdtrc, gammainc, gammaincc, gammainccinv, gammaincinv, ndtr
from torch import Tensor

from adversaries.arrays import Floats
from adversaries.attacks.posterior import Hypotheses
from adversaries.errors import InputError
from adversaries.statistics.intervals import Interval, significance

RESOLUTION = 1e-3
"""Steps with sigma below this share of the expected sum are left out: float32 rounds it away."""

PARALLEL = 1e-6
"""A direction with a smaller share outside the others adds no dimension."""

FEWEST_COORDINATES, FEWEST_IN_ALL = 8, 1000
"""Fewest coordinates of a step, and of all steps together, whose shape is judged."""

VALUES = 2**21
"""Largest number of values of a sum of squares whose law is computed."""

SPREAD = 64
"""Standard deviations about the mean that hold any sum of many squares."""

NEVER = 1e-25
"""Probability that is negligible in any number of batches."""


@dataclass(frozen=True)
class Residual:
    """One step's statistics, float64 [T]; all 0 where nothing is known.

    e is the residual in the directions in which both worlds agree.

    Attributes:
        squares: |e|^2/sigma^2, chi-square with `freedoms` degrees of freedom.
        freedoms: number of those directions.
        repeats: the part of e/sigma along the sum of all earlier e, N(0, 1).
        scales: the part along the expected sum, N(0, 1).
        signals: |expected|/sigma in these directions; scales/signals estimates the sum's excess.
        shapes: Geary's ratio of e's coordinates, standardised to mean 0 and variance 1.
    """

    squares: Tensor
    freedoms: Tensor
    repeats: Tensor
    scales: Tensor
    signals: Tensor
    shapes: Tensor


def residual(
    hypotheses: Hypotheses, known: Tensor, past: Tensor, aggregate: Tensor
) -> tuple[Residual, Tensor]:
    """Return a step's statistics, and the sum of all e/sigma so far, float32 [T, P].

    Args:
        hypotheses: of the step.
        known: [T, P], the part of the aggregate that is the same in both worlds, up to multiples of
            the hypotheses' directions (so a pair that surely takes part has one record in it).
        past: [T, P], the sum before this step, zeros at first.
        aggregate: [T, P], the release.
    """
    # A step with almost no noise reveals nothing: float32 rounds the noise away.
    std = hypotheses.noise_std
    informative = std > RESOLUTION * known.double().norm(dim=-1)
    unit = torch.where(informative, 1 / std, 0.0)[:, None]
    basis = _orthonormal(hypotheses.directions)
    # Residual, expected sum and earlier residuals, each over sigma and only in the directions in
    # which both worlds agree.
    left = _without((aggregate.double() - known.double()) * unit, basis)
    expected = _without(known.double() * unit, basis)
    before = _without(past.double(), basis)
    # A row of the basis has length 1, or 0 where it adds no direction.
    freedoms = known.shape[1] - basis.square().sum(-1).round().sum(0)
    statistics = Residual(
        squares=torch.linalg.vecdot(left, left),
        freedoms=torch.where(informative, freedoms, 0.0),
        repeats=_along(left, before),
        scales=_along(left, expected),
        signals=expected.norm(dim=-1),
        shapes=_shape(left, basis),
    )
    return statistics, (past + left.float())


def nothing(trials: int) -> Residual:
    """Return the statistics of a step for which nothing is known.

    trials: T.
    """
    zero = torch.zeros(trials, dtype=torch.float64)
    return Residual(zero, zero, zero, zero, zero, zero)


def _orthonormal(directions: Tensor) -> Tensor:
    """Return an orthonormal basis [H, T, P] of the worlds' differences; 0 for dependent rows."""
    basis: list[Tensor] = []
    for direction in directions:
        # Gram-Schmidt. What is left of a direction in the others' span is rounding: its row is 0.
        left = direction
        for other in basis:
            left = left - torch.linalg.vecdot(left, other)[:, None] * other
        length = left.norm(dim=-1, keepdim=True)
        new = length > PARALLEL * direction.norm(dim=-1, keepdim=True)
        basis.append(torch.where(new, left / length, 0.0))
    return torch.stack(basis)


def _without(rows: Tensor, basis: Tensor) -> Tensor:
    for direction in basis:
        rows = rows - torch.linalg.vecdot(rows, direction)[:, None] * direction
    return rows


def _along(rows: Tensor, direction: Tensor) -> Tensor:
    length = direction.norm(dim=-1)
    return torch.where(length > 0, torch.linalg.vecdot(rows, direction) / length, 0.0)


def _shape(left: Tensor, basis: Tensor) -> Tensor:
    """Return Geary's ratio of every row of [T, P], standardised; 0 for a zero row."""
    rows, directions = left, list(basis)
    for axis in range(len(directions)):
        # A Householder reflection maps this direction to an axis; the sign avoids cancellation.
        mirror = directions[axis].clone()
        mirror[:, axis] += torch.where(mirror[:, axis] < 0, -1.0, 1.0)
        rows = _reflected(rows, mirror)
        directions = [_reflected(direction, mirror) for direction in directions]
    # The reflections keep the noise isotropic, so all coordinates but those axes are independent.
    free = rows[:, len(basis) :]
    length, freedom = free.norm(dim=-1), free.shape[1]
    if freedom < FEWEST_COORDINATES:
        return torch.zeros_like(length)
    mean, deviation = geary(freedom)
    # The mean size over the root mean square.
    ratio = free.abs().sum(-1) / (math.sqrt(freedom) * length)
    return torch.where(length > 0, (ratio - mean) / deviation, 0.0)


def _reflected(rows: Tensor, mirror: Tensor) -> Tensor:
    """Return rows [T, P] mirrored in the plane normal to each mirror [T, P]."""
    scale = 2 * torch.linalg.vecdot(rows, mirror) / torch.linalg.vecdot(mirror, mirror)
    return rows - scale[:, None] * mirror


def geary(coordinates: int) -> tuple[float, float]:
    """Return mean and standard deviation of Geary's ratio of independent normals.

    coordinates: n. Source: Geary, "The ratio of the mean deviation to the standard deviation as a
    test of normality", 1935.
    """
    n = coordinates
    # The root mean square of n normals has mean 1 - gap (series of the gamma functions), and is
    # independent of the ratio (Basu). So the ratio's moments are quotients of moments.
    gap = 1 / (4 * n) - 1 / (32 * n**2) - 5 / (128 * n**3) + 21 / (2048 * n**4)
    mean, excess = math.sqrt(2 / math.pi) / (1 - gap), gap * (2 - gap) / (1 - gap) ** 2
    # E[ratio^2] = 2/pi + (1 - 2/pi)/n. The excess is 1/(1 - gap)^2 - 1 without its cancellation.
    return mean, math.sqrt((1 - 2 / math.pi) / n - 2 / math.pi * excess)


@dataclass(frozen=True)
class NoiseTest:
    """A test of the residuals' length against the claimed noise.

    Attributes:
        ratio: the actual noise over the claimed noise.
        interval: of the ratio, exact.
        by_step: the ratio of each of k steps, NaN where nothing was known.
        p_value: two-sided, of all together and of the most deviant step (Bonferroni).
        uneven: whether that step deviates more than all together.
        degrees_of_freedom: of all residuals together.
    """

    ratio: float
    interval: Interval
    by_step: tuple[float, ...]
    p_value: float
    uneven: bool
    degrees_of_freedom: int


@dataclass(frozen=True)
class DirectionTest:
    """Whether residuals lean along a direction."""

    statistic: float
    """Standard normal if residuals do not lean along the direction."""
    p_value: float
    """How often noise alone leans as far."""
    cosine: float
    """Mean cosine of residuals and direction, in [-1, 1], with the lengths as weights."""
    steps: int
    """Steps of all trials that had a direction."""


def noise_test(squares: Floats, freedoms: Floats, confidence: float) -> NoiseTest | None:
    """Return the chi-square test of all residuals; None without residuals.

    Args:
        squares: float64 [T, k], |e|^2/sigma^2 of every step.
        freedoms: float64 [T, k], degrees of freedom, 0 where nothing was known.
        confidence: of the ratio's interval, in (0, 1).

    Raises InputError unless 0 < confidence < 1.
    """
    tail = significance(confidence) / 2
    lengths, each = squares.sum(axis=0), freedoms.sum(axis=0)
    degrees, total = float(each.sum()), float(lengths.sum())
    if not degrees:
        return None
    # A chi-square of d degrees is twice a gamma variable of shape d/2.
    half = degrees / 2
    together = _of_length(total, degrees)
    # Bonferroni over all steps: which steps are informative may depend on earlier noise.
    alone = len(each) * min(
        _of_length(length, freedom)
        for length, freedom in zip(lengths.tolist(), each.tolist(), strict=True)
        if freedom
    )
    return NoiseTest(
        ratio=math.sqrt(total / degrees),
        interval=Interval(
            math.sqrt(total / (2 * gammainccinv(half, tail))),
            math.sqrt(total / (2 * gammaincinv(half, tail))),
            confidence,
        ),
        by_step=tuple(np.sqrt(lengths / np.where(each, each, np.nan)).tolist()),
        p_value=min(1.0, 2 * min(together, alone)),
        uneven=alone < together,
        degrees_of_freedom=int(degrees),
    )


def direction_test(parts: Floats, squares: Floats) -> DirectionTest | None:
    """Return the test of one part of every residual; None without parts.

    Args:
        parts: float64 [T, k], N(0, 1) each; exactly 0 for a step without such a direction.
        squares: float64 [T, k], |e|^2/sigma^2 of the whole residuals.
    """
    steps = int(np.count_nonzero(parts))
    if not steps:
        return None
    # Each part is N(0, 1) given all earlier steps, so their sum has variance `steps`.
    statistic = float(parts.sum() / math.sqrt(steps))
    cosine = float(parts.sum() / np.sqrt(squares)[parts != 0].sum())
    return DirectionTest(statistic, float(2 * ndtr(-abs(statistic))), cosine, steps)


@dataclass(frozen=True)
class ShapeTest:
    """Whether the residuals' coordinates are normal."""

    ratio: float
    """Mean size of a coordinate over its root mean square; 0.866 for uniform noise, 0.707 for
    Laplace noise."""
    normal: float
    """The same ratio of normal noise."""
    p_value: float
    """How often normal noise alone is as far off."""
    coordinates: int
    """Coordinates over all trials and steps."""


def shape_test(shapes: Floats, freedoms: Floats) -> ShapeTest | None:
    """Return the test of the residuals' shape; None for too few coordinates.

    Args:
        shapes: float64 [T, k], standardised ratios of `Residual.shapes`; 0 where nothing was known.
        freedoms: float64 [T, k], degrees of freedom.
    """
    informative = shapes != 0
    coordinates, steps = int(freedoms[informative].sum()), int(informative.sum())
    if coordinates < FEWEST_IN_ALL:
        return None
    statistic = float(shapes[informative].sum()) / math.sqrt(steps)
    # Steps may differ in size: state the mean standardised ratio for their average size.
    normal, deviation = geary(coordinates // steps)
    return ShapeTest(
        ratio=normal + deviation * statistic / math.sqrt(steps),
        normal=normal,
        p_value=float(2 * ndtr(-abs(statistic))),
        coordinates=coordinates,
    )


@dataclass(frozen=True)
class SamplingTest:
    """Whether batch sizes are those of Poisson sampling."""

    rate: float
    """Share of records that took part."""
    dispersion: float
    """Variance of the sizes over that of the binomial; 0 for batches of one size."""
    p_value: float
    """How often Poisson sampling alone is as far off, by rate or dispersion (Bonferroni)."""
    batches: int
    """Batches over all trials and steps."""


def sampling_test(sizes: Floats, records: int, rate: float) -> SamplingTest:
    """Return the test of batch sizes against independent Binomial(records, rate).

    Both tests are exact, of the sum and of the sum of their squared distances from the whole number
    nearest to the mean; for very many values it is a gamma variable's.

    Args:
        sizes: whole numbers [T, k] as float64.
        records: number of records that may take part in a batch.
        rate: probability of each, in (0, 1).

    Raises InputError unless 0 < rate < 1, or without records or batches.
    """
    if not 0 < rate < 1:
        raise InputError(f"the sampling rate is {rate}; give a number between 0 and 1, such as 0.1")
    if records < 1 or not sizes.size:
        raise InputError(
            f"there are {sizes.size} batches of {records} records; give at least one of each"
        )
    mean, variance = records * rate, records * rate * (1 - rate)
    # All batches together are one binomial. bdtrc is P[> k], which is undefined at k = -1.
    joined, coins = int(sizes.sum()), records * sizes.size
    at_least = bdtrc(joined - 1, coins, rate) if joined else 1.0
    of_rate = _two_sided(bdtr(joined, coins, rate), at_least)
    return SamplingTest(
        rate=joined / coins,
        dispersion=float(np.square(sizes - mean).mean() / variance),
        p_value=min(1.0, 2 * min(of_rate, _two_sided(*tails_of_squares(sizes, records, rate)))),
        batches=sizes.size,
    )


def tails_of_squares(sizes: Floats, records: int, rate: float) -> tuple[float, float]:
    """Return the probabilities that the squares' sum is at most, and at least, the observed one.

    Args:
        sizes: float64 [k], sizes of batches; the squares are of their distances from the centre.
        records: number of records that may take part in a batch.
        rate: probability of each.
    """
    # The law of one batch: its size's squared distance from the centre.
    centre, possible = round(records * rate), np.arange(records + 1)
    law, squares = scipy.stats.binom.pmf(possible, records, rate), np.square(possible - centre)
    observed = int(np.square(sizes - centre).sum())
    mean = float(law @ squares)
    deviation = math.sqrt(sizes.size * float(law @ np.square(squares - mean)))
    mean *= sizes.size
    # The range of the sum, or the part of it beyond which the probability rounds to 0.
    highest = sizes.size * int(squares[law > NEVER].max())
    lowest, length = 0, highest + 1
    if length > VALUES:
        length = 2 * math.ceil(SPREAD * deviation)
        lowest = math.floor(mean) - length // 2
    # Still too many values: a gamma variable of the same mean and variance.
    if length > VALUES:
        shape, scale = (mean / deviation) ** 2, deviation**2 / mean
        return gammainc(shape, observed / scale), gammaincc(shape, observed / scale)
    # Sums are represented by their remainders modulo the length.
    length = next_fast_len(length, real=True)
    # The law of the sum: one batch's law, convolved with itself by Fourier transform.
    single = np.bincount(squares % length, weights=law, minlength=length)
    summed = irfft(rfft(single) ** sizes.size, length).clip(0)
    ordered = np.roll(summed, -lowest)
    place = observed - lowest
    below = float(ordered[: max(place + 1, 0)].sum())
    return below, float(ordered[max(place, 0) :].sum())


def _of_length(squares: float, freedoms: float) -> float:
    """Return the two-sided p-value of a chi-square with so many degrees of freedom."""
    return _two_sided(gammainc(freedoms / 2, squares / 2), gammaincc(freedoms / 2, squares / 2))


def _two_sided(below: float, above: float) -> float:
    return min(1.0, 2 * float(min(below, above)))
