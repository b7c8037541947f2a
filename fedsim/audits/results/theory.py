"""What theory allows and predicts, and whether the aggregates agree with it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from adversaries.attacks.residuals import DirectionTest, SamplingTest, ShapeTest
from fedsim.audits.results.numbers import REALS, Ends, Real


@dataclass(frozen=True)
class Accounted:
    """Bounds by the configured accountant, where it is not the exact one."""

    epsilon: Real
    rho_beta: Real
    exceeded: Real
    """Upper bound on the share of trainings on D in which any pair passes rho_beta."""


@dataclass(frozen=True)
class RunBounds:
    """What else theory says about the configured vantage, in one training."""

    accountant: str
    accounted: Accounted | None
    """None where the accountant is exact, so that the row of the vantage has its numbers."""
    tail_probability: Real | None
    """How often the privacy loss of the worst pair is above epsilon; None if unknown."""
    theorem2_rho_alpha: Real
    """The value that the paper prints, which is not a bound."""
    yeom_bound: Real
    """e^epsilon - 1, a bound on the advantage of membership inference; vacuous above 1."""


@dataclass(frozen=True)
class ReleasedTogether:
    """What all trainings released together, where the noise does not come from the seed."""

    trainings: int
    """Number of models of the same people that were released, interrupted attempts included."""
    rounds: int
    """Rounds of all trainings together."""
    delta: Real
    vantage: str
    epsilon: Real
    """Epsilon of everything released, towards the vantage."""
    rho_beta: Real
    epsilon_of_one_training: Real
    """Epsilon of one training towards the same vantage, for comparison."""
    vantages: Mapping[str, Real]
    """Epsilon of everything released, towards each vantage."""


@dataclass(frozen=True)
class Budget:
    """What the rounds of one training cost the worst-off client of the worst batch of trials."""

    stop_at: Real | None
    """Epsilon at which training ends; None without a limit."""
    stop_at_delta: Real | None
    """Delta of stop_at; None without a limit."""
    delta: Real
    accountant: str
    vantage: str
    """Vantage towards which `spent` is counted."""
    rounds_planned: int
    """Rounds of one training, as configured."""
    rounds_run: int
    """Rounds of one training that were run; at most rounds_planned."""
    stopped: bool
    """Whether fewer rounds were run than planned."""
    epsilon: Mapping[str, Real]
    """Epsilon spent towards each vantage."""
    epsilon_by_round: list[Real]
    """Epsilon spent after each round, towards the configured vantage."""
    earlier_attempts: int
    """Rounds that interrupted attempts had released."""


@dataclass(frozen=True)
class Fit:
    """Kolmogorov-Smirnov distance of log-odds from theory."""

    statistic: Real
    """Largest gap between the two distribution functions, in [0, 1]."""
    p_value: Real
    """How often chance alone brings so large a gap."""
    trials: int


@dataclass(frozen=True)
class Fits:
    """How well the log-odds of each world follow theory; None where that cannot be told."""

    world_d: Fit | None
    world_d_prime: Fit | None


@dataclass(frozen=True)
class Predicted:
    """Theory's prediction for the trials at one vantage."""

    mu: Real | None
    """Signal to noise of all steps; None where one number does not describe it."""
    advantage: Real | None
    """None where the log-odds have no closed form."""
    standard_error: Real | None
    """Standard error of a simulated prediction."""
    method: str
    """"closed form", "simulation", "none", or what was computed, in words."""


@dataclass(frozen=True)
class PredictionResult(Predicted):
    """Theory's prediction for the configured vantage, and how well the run follows it."""

    deterministic: bool
    """Whether mu is the same in every trial."""
    fit: Fits
    """Fit of the log-odds after the last round."""


@dataclass(frozen=True)
class NoiseTestResult:
    """Whether residuals have the length that the claimed noise gives them."""

    ratio: Real
    """Measured noise over claimed noise."""
    interval: Ends
    """Interval of the ratio, at the confidence of the residuals."""
    by_step: list[Real | None]
    p_value: Real
    """How often the claimed noise alone is as far off."""
    uneven: bool
    """Whether one step is further off than all together."""
    degrees_of_freedom: int
    """Coordinates measured, over all trials and steps."""


@dataclass(frozen=True)
class ScaleTest(DirectionTest):
    """Whether the sum is larger or smaller than expected."""

    factor: Real | None
    """The sum over the expected sum."""


@dataclass(frozen=True)
class Residuals:
    """Tests of the residuals; None for a test that could not be made."""

    noise: NoiseTestResult
    """Whether residuals are as long as the claimed noise."""
    repeats: Annotated[DirectionTest, REALS] | None
    """Whether the noise of a round resembles that of earlier rounds."""
    scale: Annotated[ScaleTest, REALS] | None
    """Whether the sum under the noise is the expected one."""
    shape: Annotated[ShapeTest, REALS] | None
    """Whether the noise is normal."""
    sampling: Annotated[SamplingTest, REALS] | None
    """None where every record takes part in every round."""
    confidence: Real
    """Confidence of the noise's interval, in (0, 1)."""
    note: str
    """What residuals are, in one sentence."""
