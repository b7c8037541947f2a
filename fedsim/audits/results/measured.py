"""Measurements over the trials: the part of a report that does not come from theory alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from adversaries.attacks.residuals import DirectionTest, SamplingTest, ShapeTest
from adversaries.bounds.one_run import CanaryEstimate
from adversaries.statistics.estimators import AdvantageEstimate
from adversaries.statistics.intervals import EpsilonBound
from fedsim.audits.results.numbers import REALS, Ends, Real
from fedsim.learning.training.criterion import Measured


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
    delta: Real
    vantage: str
    epsilon: Real
    rho_beta: Real
    epsilon_of_one_training: Real
    """Epsilon of one training towards the same vantage, for comparison."""
    vantages: Mapping[str, Real]


@dataclass(frozen=True)
class Budget:
    """What the rounds of one training cost the worst-off client of the worst batch of trials."""

    stop_at: Real | None
    """Epsilon at which training ends; None without a limit."""
    stop_at_delta: Real | None
    delta: Real
    accountant: str
    vantage: str
    """Vantage towards which `spent` is counted."""
    rounds_planned: int
    rounds_run: int
    stopped: bool
    epsilon: Mapping[str, Real]
    epsilon_by_round: list[Real]
    """Epsilon spent after each round, towards the configured vantage."""
    earlier_attempts: int


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
    method: str
    """"closed form", "simulation", "none", or what was computed, in words."""


@dataclass(frozen=True)
class PredictionResult(Predicted):
    """Theory's prediction for the configured vantage, and how well the run follows it."""

    deterministic: bool
    """Whether mu is the same in every trial."""
    fit: Fits


@dataclass(frozen=True)
class NoiseTestResult:
    """Whether residuals have the length that the claimed noise gives them."""

    ratio: Real
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
    repeats: Annotated[DirectionTest, REALS] | None
    """Whether the noise of a round resembles that of earlier rounds."""
    scale: Annotated[ScaleTest, REALS] | None
    """Whether the sum under the noise is the expected one."""
    shape: Annotated[ShapeTest, REALS] | None
    sampling: Annotated[SamplingTest, REALS] | None
    """None where every record takes part in every round."""
    confidence: Real
    """Confidence of the noise's interval, in (0, 1)."""
    note: str


Bound = Annotated[EpsilonBound, REALS]


@dataclass(frozen=True)
class EstimatedEpsilons:
    """Estimates of epsilon, as in the paper; None where one does not apply."""

    sensitivity: Real | None
    """From the sensitivities, by the paper's accountant."""
    sensitivity_exact: Real | None
    """From the sensitivities, by the privacy loss distribution."""
    advantage: Real | None
    """Epsilon at which the measured advantage would be the bound."""


@dataclass(frozen=True)
class Empirical:
    """Further measurements at the configured vantage, whose row has the advantage.

    None stands for a number that the trials cannot give.
    """

    wins: int | None
    losses: int | None
    ties: int | None
    """Trials whose log-odds favour neither world."""
    epsilon: EstimatedEpsilons
    lower_bounds: Mapping[str, Bound]
    """Lower bounds on epsilon, by the name of the estimator."""
    leading: str
    """Name of the lower bound that was chosen in advance, by a rule."""
    sensitivity_rms: Real
    """Root mean square of the local sensitivity over all rounds and trials."""
    sensitivity_max: Real
    """Largest local sensitivity over all rounds and trials."""
    sensitivity_bound: Real | None
    """Largest sensitivity of a round that clipping allows; None where nothing bounds it."""


@dataclass(frozen=True)
class Decisions:
    """The decisions of an attack on code over all trials."""

    trials: int
    wins: int
    losses: int
    ties: int
    """Trials in which it favoured neither."""
    seed: int
    lower_bounds: Mapping[str, Bound]
    """Lower bounds on epsilon, which hold together."""

    @classmethod
    def of(
        cls, found: AdvantageEstimate, trials: int, seed: int, bounds: Mapping[str, EpsilonBound]
    ) -> "Decisions":
        return cls(trials, found.wins, found.losses, found.ties, seed, bounds)


@dataclass(frozen=True)
class TradeOff:
    """The measured trade-off curve at one vantage, with a band, beside what theory allows.

    The lists are by threshold, from the strictest to the mildest; rates and allowed are a grid.
    """

    confidence: Real
    """Confidence of all limits together, in (0, 1)."""
    false: list[Real]
    """Share of the trials on D' that are called D."""
    false_low: list[Real]
    false_high: list[Real]
    true: list[Real]
    """Share of the trials on D that are called D."""
    true_low: list[Real]
    true_high: list[Real]
    rates: list[Real]
    """False-positive rates, from 0 to 1."""
    allowed: list[Real]
    """Largest true-positive rate that theory allows at each of `rates`."""
    surely_above: Real
    """Largest excess of a lower limit of the true positives over what theory allows, at the
    confidence of an alarm; at most 0 where the band does not cross the curve of theory."""


@dataclass(frozen=True)
class MembershipAttack:
    """Result of an attack by losses; None for a number that the attack does not give."""

    advantage: Real | None
    """True less false positive rate, in [-1, 1]."""
    advantage_interval: Ends | None
    """Interval of the advantage over trials, for these records."""
    tpr: Real | None = None
    fpr: Real | None = None
    area: Real | None = None


@dataclass(frozen=True)
class CraftedResult:
    """What the released model alone proves of a crafted target."""

    description: str
    lower_bounds: Mapping[str, Bound]
    """Lower bounds on the epsilon of one record; empty where the model was not scored."""


@dataclass(frozen=True)
class RoundSeries:
    """Mean over the trials and the band of 90 % of them, before round 1 and after each round; None
    after a model has diverged."""

    mean: list[Real | None]
    low: list[Real | None]
    high: list[Real | None]
    """95% quantiles, k + 1 values."""


@dataclass(frozen=True)
class Utility:
    """Quality of the global model."""

    rounds: list[int]
    """Rounds, from 0 before the first to k after the last."""
    accuracy: RoundSeries
    """Share of right answers, in [0, 1]."""
    loss: RoundSeries
    trials: int
    measured: Annotated[Measured, REALS]
    """Measures of the final models on held-out records, means over the trials."""


@dataclass(frozen=True)
class CanaryScores:
    """Histograms of the scores of included and of excluded canaries."""

    edges: list[Real]
    included: list[int]
    excluded: list[int]


@dataclass(frozen=True)
class OneRunResult:
    """What the canaries of a single training prove."""

    count: int
    """Canaries of a trial, included and excluded."""
    clients: list[int]
    included: int
    """Canaries included in the first trial, which leads."""
    trials: int
    claimed_epsilon: Real
    """Epsilon of the guarantee towards a participant."""
    canary_mu: Real
    """Mu of one canary under the claimed noise, towards an observer of the aggregates alone."""
    canary_epsilon: Real
    bounds: Mapping[str, Bound]
    estimate: Annotated[CanaryEstimate, REALS]
    scores: CanaryScores
    """Scores of the canaries in the first trial."""
