"""What residuals showed: tests of what is left of the aggregates beside what is known of them."""

from dataclasses import dataclass

from fedsim.audits.results.numbers import Ends, Real


@dataclass(frozen=True)
class NoiseTest:
    """Whether residuals are as long as the claimed noise makes them."""

    ratio: Real
    """The noise that is there over the noise that is claimed."""
    interval: Ends
    """Of the ratio, at the confidence of the residuals."""
    by_step: list[Real | None]
    """The same of each step, None where it says nothing."""
    p_value: Real
    """How often the claimed noise alone is as far off."""
    uneven: bool
    """Whether one step is further off than all together."""
    degrees_of_freedom: int
    """Coordinates that were measured, over all trials and steps."""


@dataclass(frozen=True)
class DirectionTest:
    """Whether residuals lean along a direction."""

    statistic: Real
    """Standard normal if they lean nowhere."""
    p_value: Real
    """How often noise alone leans as far."""
    cosine: Real
    """The mean of residuals and direction, in [-1, 1]."""
    steps: int
    """Of all trials, in which there was a direction."""


@dataclass(frozen=True)
class ScaleTest(DirectionTest):
    """Whether the sum is larger or smaller than expected."""

    factor: Real | None
    """What it is of the expected sum."""
    first_p_value: Real | None
    """Of the first round alone."""


@dataclass(frozen=True)
class ShapeTest:
    """Whether the residuals' coordinates are normal."""

    ratio: Real
    """Of their mean size to their root mean square."""
    normal: Real
    """What that is of normal noise."""
    p_value: Real
    """How often normal noise alone is as far off."""
    coordinates: int
    """Over all trials and steps."""


@dataclass(frozen=True)
class SamplingTest:
    """Whether batches have the sizes that Poisson sampling gives them."""

    rate: Real
    """The share of records that took part."""
    dispersion: Real
    """The variance of the sizes over that of the binomial."""
    p_value: Real
    """How often Poisson sampling alone is as far off."""
    batches: int
    """Over all trials and steps."""


@dataclass(frozen=True)
class Residuals:
    """Tests of what is left of the aggregates; None for those that could not be made."""

    noise: NoiseTest
    """Whether they are as long as the noise that is claimed."""
    repeats: DirectionTest | None
    """Whether the noise of a round looks like that of rounds before."""
    scale: ScaleTest | None
    """Whether the sum under the noise is the one expected."""
    shape: ShapeTest | None
    """Whether the noise is normal."""
    sampling: SamplingTest | None
    """None where every record takes part in every round."""
    confidence: Real
    """Of the interval of the noise, in (0, 1)."""
    note: str
    """What residuals are, in a sentence."""
