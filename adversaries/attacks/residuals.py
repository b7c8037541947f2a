"""What is left of an aggregate when everything that the adversary knows is subtracted: noise.

The belief looks along the one direction in which the two worlds differ. In all others both say the
same: r minus what is expected is N(0, sigma^2 I) there, whatever the world. A mechanism that adds
other noise than it claims, or sums something else than clipped gradients, shows in these P - 1
directions long before it shows in the one.

Four statistics of every step. Given all steps before, each has a known law if the mechanism is as
claimed, in whatever way later steps depend on earlier ones; so sums over steps and trials have one.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy
import torch
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import bdtr, bdtrc, gammainc, gammaincc, gammainccinv, gammaincinv, ndtr
from torch import Tensor

from adversaries.attacks.posterior import Hypotheses
from adversaries.errors import InputError
from adversaries.statistics.intervals import Interval, significance

Floats = npt.NDArray[np.float64]

RESOLUTION = 1e-3
"""A step whose sigma is below this share of what is expected is left out: float32 rounds it."""

PARALLEL = 1e-6
"""A direction of which less than this share is new adds none."""

FEWEST_COORDINATES, FEWEST_IN_ALL = 8, 1000
"""Coordinates of a step, and of all steps together, below which their shape is not judged."""

VALUES = 2**21
"""The most values of a sum of squares whose law is computed."""

SPREAD = 64
"""Standard deviations about the mean outside of which no sum of many squares lies."""

NEVER = 1e-25
"""A chance that no number of batches makes anything of."""


@dataclass(frozen=True)
class Residual:
    """One step's statistics, float64 [T]; all 0 where nothing can be known.

    e is what is left of the aggregate in the directions that both worlds agree on.

    Attributes:
        squares: |e|^2/sigma^2, chi-square with `freedoms` degrees of freedom.
        freedoms: the number of those directions.
        repeats: the part of e/sigma along the sum of all e before, N(0, 1).
        scales: the part along what was expected, N(0, 1).
        signals: |expected|/sigma in these directions, by which scales/signals estimates how much
            too large the sum was.
        shapes: Geary's ratio of e's coordinates, their mean size over their root mean square,
            brought to mean 0 and variance 1.
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
        hypotheses: about the step.
        known: [T, P], what the aggregate contains in both worlds, up to multiples of the directions
            of the hypotheses (so that of a pair that surely takes part one of the two is in it).
        past: [T, P], the sum before this step, zeros at first.
        aggregate: [T, P], what was released.
    """
    # A step of next to no noise tells nothing: in float32 it is rounded away.
    std = hypotheses.noise_std
    informative = std > RESOLUTION * known.double().norm(dim=-1)
    unit = torch.where(informative, 1 / std, 0.0)[:, None]
    basis = _orthonormal(hypotheses.directions)
    # What is left over, what was expected and what was left over before, each over sigma and
    # only in the directions on which both worlds agree.
    left = _without((aggregate.double() - known.double()) * unit, basis)
    expected = _without(known.double() * unit, basis)
    before = _without(past.double(), basis)
    # A row of the basis has length 1, or 0 where it adds no direction.
    freedoms = known.shape[1] - basis.square().sum(-1).round().sum(0)
    found = Residual(
        squares=torch.linalg.vecdot(left, left),
        freedoms=torch.where(informative, freedoms, 0.0),
        repeats=_along(left, before),
        scales=_along(left, expected),
        signals=expected.norm(dim=-1),
        shapes=_shape(left, basis),
    )
    return found, (past + left.float())


def nothing(trials: int) -> Residual:
    """Return the statistics of a step that nothing is known to be subtracted from."""
    zero = torch.zeros(trials, dtype=torch.float64)
    return Residual(zero, zero, zero, zero, zero, zero)


def _orthonormal(directions: Tensor) -> Tensor:
    """Return an orthonormal basis [H, T, P] of what the worlds differ in; zeros for none."""
    basis: list[Tensor] = []
    for direction in directions:
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
    """Return Geary's ratio of every row of [T, P], standardised; 0 where nothing is left.

    The directions of the basis are cut out of the rows, so that their coordinates depend on each
    other a little. Reflections that carry each direction to an axis of its own leave the others
    nearly as they were, and exactly independent.
    """
    rows, directions = left, list(basis)
    for axis in range(len(directions)):
        mirror = directions[axis].clone()
        mirror[:, axis] += torch.where(mirror[:, axis] < 0, -1.0, 1.0)
        rows = _reflected(rows, mirror)
        directions = [_reflected(direction, mirror) for direction in directions]
    seen = rows[:, len(basis) :]
    length, freedom = seen.norm(dim=-1), seen.shape[1]
    if freedom < FEWEST_COORDINATES:
        return torch.zeros_like(length)
    mean, deviation = geary(freedom)
    ratio = seen.abs().sum(-1) / (math.sqrt(freedom) * length)
    return torch.where(length > 0, (ratio - mean) / deviation, 0.0)


def _reflected(rows: Tensor, mirror: Tensor) -> Tensor:
    """Return rows [T, P] mirrored in the plane that each mirror [T, P] is normal to."""
    scale = 2 * torch.linalg.vecdot(rows, mirror) / torch.linalg.vecdot(mirror, mirror)
    return rows - scale[:, None] * mirror


def geary(coordinates: int) -> tuple[float, float]:
    """Return mean and standard deviation of Geary's ratio of independent normals.

    Their mean size over their root mean square: sqrt(2/pi) in the limit. The ratio is independent
    of the root mean square (Basu), so that both follow from moments of chi, whose mean over sqrt(n)
    is 1 - gap.

    Args:
        coordinates: n, how many normals.

    Source:
        Geary, "The ratio of the mean deviation to the standard deviation as a test of normality",
        1935.
    """
    n = coordinates
    gap = 1 / (4 * n) - 1 / (32 * n**2) - 5 / (128 * n**3) + 21 / (2048 * n**4)
    mean, excess = math.sqrt(2 / math.pi) / (1 - gap), gap * (2 - gap) / (1 - gap) ** 2
    return mean, math.sqrt((1 - 2 / math.pi) / n - 2 / math.pi * excess)


@dataclass(frozen=True)
class NoiseTest:
    """Whether the residuals have the length that the claimed noise gives them.

    Attributes:
        ratio: the noise that is there over the noise that is claimed.
        interval: of the ratio, exact.
        by_step: the ratio of each of k steps, NaN where nothing was known.
        p_value: two-sided, of all together and of the step that is furthest off (Bonferroni).
        uneven: whether that step is further off than all together, as where one has the noise that
            others lack.
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
    """Whether the residuals lean along a direction.

    Attributes:
        statistic: N(0, 1) if they do not.
        p_value: two-sided.
        cosine: between a residual and the direction, on average weighted by their lengths.
        steps: how many steps, of all trials, have such a direction.
    """

    statistic: float
    p_value: float
    cosine: float
    steps: int


def noise_test(squares: Floats, freedoms: Floats, confidence: float) -> NoiseTest | None:
    """Return the chi-square test of all residuals; None where there are none.

    Args:
        squares: float64 [T, k], |e|^2/sigma^2 of every step.
        freedoms: float64 [T, k], their degrees of freedom, 0 where nothing was known.
        confidence: of the ratio's interval, in (0, 1).

    Raises:
        InputError: unless 0 < confidence < 1.
    """
    tail = significance(confidence) / 2
    lengths, each = squares.sum(axis=0), freedoms.sum(axis=0)
    degrees, total = float(each.sum()), float(lengths.sum())
    if not degrees:
        return None
    half = degrees / 2
    together = _of_length(total, degrees)
    # Times all steps, told or not: which are told may depend on the noise of those before.
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
    """Return the test of one part of every residual; None where there are none.

    Args:
        parts: float64 [T, k], N(0, 1) each; exactly 0 for a step that has no such direction.
        squares: float64 [T, k], |e|^2/sigma^2 of the whole residuals.
    """
    steps = int(np.count_nonzero(parts))
    if not steps:
        return None
    statistic = float(parts.sum() / math.sqrt(steps))
    cosine = float(parts.sum() / np.sqrt(squares)[parts != 0].sum())
    return DirectionTest(statistic, float(2 * ndtr(-abs(statistic))), cosine, steps)


@dataclass(frozen=True)
class ShapeTest:
    """Whether the coordinates of the residuals are normal.

    Attributes:
        ratio: of their mean size to their root mean square.
        normal: what it is of normal noise; 0.866 of uniform noise, 0.707 of Laplace's.
        p_value: two-sided.
        coordinates: how many were looked at.
    """

    ratio: float
    normal: float
    p_value: float
    coordinates: int


def shape_test(shapes: Floats, freedoms: Floats) -> ShapeTest | None:
    """Return the test of the residuals' shape; None where there are too few.

    A step's ratio leans to one side by 1.8/sqrt(n) of its n coordinates, and the sum of all by that
    of all coordinates, which from `FEWEST_IN_ALL` on moves no p-value by more than a part.

    Args:
        shapes: float64 [T, k], as of `Residual.shapes`; 0 where nothing was known.
        freedoms: float64 [T, k], degrees of freedom.
    """
    informative = shapes != 0
    coordinates, steps = int(freedoms[informative].sum()), int(informative.sum())
    if coordinates < FEWEST_IN_ALL:
        return None
    statistic = float(shapes[informative].sum()) / math.sqrt(steps)
    normal, deviation = geary(coordinates // steps)
    return ShapeTest(
        ratio=normal + deviation * statistic / math.sqrt(steps),
        normal=normal,
        p_value=float(2 * ndtr(-abs(statistic))),
        coordinates=coordinates,
    )


@dataclass(frozen=True)
class SamplingTest:
    """Whether batches have the sizes that Poisson sampling gives them.

    Attributes:
        rate: the share of records that took part.
        dispersion: the variance of the sizes over that of the binomial, 0 for batches of one size.
        p_value: two-sided, of both together (Bonferroni).
        batches: how many there were.
    """

    rate: float
    dispersion: float
    p_value: float
    batches: int


def sampling_test(sizes: Floats, records: int, rate: float) -> SamplingTest:
    """Return the test of batch sizes against independent Binomial(records, rate).

    That of their sum is exact. So is that of the sum of their squared distances from the whole
    number nearest to the mean, up to rounding of 1e-12 or so: the law of one distance, convolved
    with itself. Where that sum has too many values for it, there are so many batches, or such large
    ones, that a gamma variable of the same mean and variance has the same tails.

    Args:
        sizes: whole numbers [T, k] as float64.
        records: how many may take part in a batch.
        rate: the probability of each, in (0, 1).

    Raises:
        InputError: unless 0 < rate < 1 and there are records and batches.
    """
    if not 0 < rate < 1:
        raise InputError(f"the sampling rate is {rate}; give a number between 0 and 1, such as 0.1")
    if records < 1 or not sizes.size:
        raise InputError(
            f"there are {sizes.size} batches of {records} records; give at least one of each"
        )
    mean, variance = records * rate, records * rate * (1 - rate)
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
    """Return the chances that the squares' sum is at most, and at least, what it is.

    Args:
        sizes: float64 [k], of the batches; the squares are of their distances from the centre.
        records: of which each is in a batch, or is not.
        rate: with which it is.
    """
    # The law of one batch: its size's squared distance from the centre.
    centre, possible = round(records * rate), np.arange(records + 1)
    law, squares = scipy.stats.binom.pmf(possible, records, rate), np.square(possible - centre)
    seen = int(np.square(sizes - centre).sum())
    mean = float(law @ squares)
    deviation = math.sqrt(sizes.size * float(law @ np.square(squares - mean)))
    mean *= sizes.size
    # All that the sum can be, or else all that it is but for a chance that no float tells from 0.
    highest = sizes.size * int(squares[law > NEVER].max())
    lowest, length = 0, highest + 1
    if length > VALUES:
        length = 2 * math.ceil(SPREAD * deviation)
        lowest = math.floor(mean) - length // 2
    # Still too many values: a gamma variable of the same mean and variance.
    if length > VALUES:
        shape, scale = (mean / deviation) ** 2, deviation**2 / mean
        return gammainc(shape, seen / scale), gammaincc(shape, seen / scale)
    # Sums are told apart by what is left of them when divided by the length.
    length = next_fast_len(length, real=True)
    # The law of the sum: that of one, convolved with itself by Fourier's transform.
    single = np.bincount(squares % length, weights=law, minlength=length)
    summed = irfft(rfft(single) ** sizes.size, length).clip(0)
    ordered = np.roll(summed, -lowest)
    place = seen - lowest
    below = float(ordered[: max(place + 1, 0)].sum())
    return below, float(ordered[max(place, 0) :].sum())


def _of_length(squares: float, freedoms: float) -> float:
    """Return the two-sided p-value of a chi-square with so many degrees of freedom."""
    return _two_sided(gammainc(freedoms / 2, squares / 2), gammaincc(freedoms / 2, squares / 2))


def _two_sided(below: float, above: float) -> float:
    return min(1.0, 2 * float(min(below, above)))
