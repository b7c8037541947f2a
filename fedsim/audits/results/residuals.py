"""Tests of the residuals: the aggregates less all that the adversary knows of them."""

from dataclasses import dataclass

from fedsim.audits.results.numbers import Ends, Real


@dataclass(frozen=True)
class NoiseTest:
    """Whether residuals have the length that the claimed noise gives them."""

    ratio: Real
    """Measured noise over claimed noise."""
    interval: Ends
    """Interval of the ratio, at the confidence of the residuals."""
    by_step: list[Real | None]
    """Ratio of each step; None where a step cannot tell."""
    p_value: Real
    """How often the claimed noise alone is as far off."""
    uneven: bool
    """Whether one step is further off than all together."""
    degrees_of_freedom: int
    """Coordinates measured, over all trials and steps."""


@dataclass(frozen=True)
class DirectionTest:
    """Whether residuals lean along a direction."""

    statistic: Real
    """Standard normal if residuals do not lean along the direction."""
    p_value: Real
    """How often noise alone leans as far."""
    cosine: Real
    """Mean cosine of residuals and direction, in [-1, 1]."""
    steps: int
    """Steps of all trials that had a direction."""


@dataclass(frozen=True)
class ScaleTest(DirectionTest):
    """Whether the sum is larger or smaller than expected."""

    factor: Real | None
    """The sum over the expected sum."""
    first_p_value: Real | None
    """p-value of the first round alone."""


@dataclass(frozen=True)
class ShapeTest:
    """Whether the residuals' coordinates are normal."""

    ratio: Real
    """Mean size of a coordinate over its root mean square."""
    normal: Real
    """The same ratio of normal noise."""
    p_value: Real
    """How often normal noise alone is as far off."""
    coordinates: int
    """Coordinates over all trials and steps."""


@dataclass(frozen=True)
class SamplingTest:
    """Whether batch sizes are those of Poisson sampling."""

    rate: Real
    """Share of records that took part."""
    dispersion: Real
    """Variance of the sizes over that of the binomial."""
    p_value: Real
    """How often Poisson sampling alone is as far off."""
    batches: int
    """Batches over all trials and steps."""


@dataclass(frozen=True)
class Residuals:
    """Tests of the residuals; None for a test that could not be made."""

    noise: NoiseTest
    """Whether residuals are as long as the claimed noise."""
    repeats: DirectionTest | None
    """Whether the noise of a round resembles that of earlier rounds."""
    scale: ScaleTest | None
    """Whether the sum under the noise is the expected one."""
    shape: ShapeTest | None
    """Whether the noise is normal."""
    sampling: SamplingTest | None
    """None where every record takes part in every round."""
    confidence: Real
    """Confidence of the noise's interval, in (0, 1)."""
    note: str
    """What residuals are, in one sentence."""
