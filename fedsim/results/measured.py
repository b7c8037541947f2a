"""What the trials showed: the part of a report that rests on measurements."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fedsim.results.numbers import Ends, Real
from fedsim.results.theory import Predicted


@dataclass(frozen=True)
class LowerBound:
    """What an estimator proves of epsilon at delta: its result as report.json holds it."""

    epsilon: Real
    delta: Real
    confidence: Real
    method: str
    assumes: str
    trusts_noise: bool
    """Whether the claimed noise entered."""
    details: Mapping[str, Real]
    """The statistics behind the number."""
    reason: str | None
    """Why a bound of 0 says nothing, if it does."""
    kind: Literal["confidence", "credible"]
    """Credible: holds with the confidence given the trials and a prior."""
    p_value: Real | None = None
    """How often chance alone puts it above the epsilon of theory; None unless it is above."""


@dataclass(frozen=True)
class Headline:
    """The lower bound that the report leads with."""

    name: str
    epsilon: Real
    confidence: Real
    rule: str
    """By which it was chosen in advance."""


@dataclass(frozen=True)
class Comparison:
    """One comparison of what trusts the claimed noise with what does not."""

    name: str
    agree: bool
    """Whether both can be right."""
    surer: bool
    """Whether the worlds lie further apart than the claimed noise lets them."""
    confidence: Real
    details: Mapping[str, Real]


@dataclass(frozen=True)
class Agreement:
    """Whether what trusts the claimed noise agrees with what does not."""

    agree: bool | None
    """None where nothing could be compared."""
    comparisons: list[Comparison]


@dataclass(frozen=True)
class Band:
    """An estimate over a grid, with its confidence band."""

    estimate: list[Real]
    low: list[Real]
    high: list[Real]


@dataclass(frozen=True)
class PrivacyProfile:
    """Delta as a function of epsilon."""

    epsilon: list[Real]
    theory: list[Real]
    """Of the claimed mechanism."""
    directions: Mapping[str, Band]
    """By the world in which log-odds were measured."""
    note: str


@dataclass(frozen=True)
class EstimatedEpsilons:
    """The paper's estimates of epsilon; None where one does not apply."""

    sensitivity: Real | None
    """From sensitivities, by the paper's accountant."""
    sensitivity_exact: Real | None
    """The same by the privacy loss distribution."""
    belief: Real | None
    advantage: Real | None


@dataclass(frozen=True)
class SensitivityByRound:
    """Local sensitivities of each round, over the trials."""

    rms: list[Real]
    low: list[Real]
    median: list[Real]
    high: list[Real]


@dataclass(frozen=True)
class Empirical:
    """What was measured at the configured vantage; None for what is no finding of the trials."""

    advantage: Real | None
    advantage_interval: Ends | None
    """None where all trials are of one world."""
    standard_error: Real | None
    confidence: Real
    wins: int | None
    losses: int | None
    ties: int | None
    delta_prime: Real | None
    """The share of trials on D whose belief passed rho_beta."""
    delta_prime_interval: Ends | None
    epsilon: EstimatedEpsilons
    lower_bounds: Mapping[str, LowerBound]
    headline: Headline
    agreement: Agreement
    privacy_profile: PrivacyProfile | None
    sensitivity_rms: Real
    sensitivity_max: Real
    sensitivity_by_round: SensitivityByRound
    sensitivity_note: str
    sensitivity_bound: Real | None
    """What clipping allows in a round; None where nothing bounds it."""


@dataclass(frozen=True)
class VantageEmpirical:
    """What was measured at any vantage."""

    advantage: Real | None
    advantage_interval: Ends | None
    standard_error: Real | None
    confidence: Real
    delta_prime: Real | None
    belief: Real
    """Of the most extreme trial."""
    epsilon_belief: Real
    lower_bound: LowerBound
    surely_at_least: Real | None
    """The advantage, as surely as an alarm must be."""
    within_bound: bool | None
    """None where there are not trials of both worlds."""
    near_prediction: bool | None


@dataclass(frozen=True)
class AtVantage:
    """Bounds, prediction and measurement at one vantage."""

    noise_multiplier: Real | None
    epsilon: Real
    rho_beta: Real
    rho_alpha: Real
    exact_posterior: bool
    """Whether log-odds are the exact posterior's there."""
    prediction: Predicted | None
    """None where nothing was measured; the note says why."""
    empirical: VantageEmpirical | None
    note: str


@dataclass(frozen=True)
class MembershipAttack:
    """What an attack by losses achieved; None for what it does not have."""

    advantage: Real | None
    advantage_interval: Ends | None
    advantage_interval_of_these: Ends | None = None
    """About the records of this run alone."""
    tpr: Real | None = None
    fpr: Real | None = None
    area: Real | None = None
    """Under the curve of true against false positive rates."""
    area_interval: Ends | None = None
    shadow_trials: int | None = None
    """Of which it knew the worlds."""
    games: int | None = None
    """On which it was judged."""


@dataclass(frozen=True)
class NoiseTest:
    """Whether residuals are as long as the claimed noise makes them."""

    ratio: Real
    """The noise that is there over the noise that is claimed."""
    interval: Ends
    by_step: list[Real | None]
    """The same of each step, None where it says nothing."""
    p_value: Real
    uneven: bool
    """Whether one step is further off than all together."""
    degrees_of_freedom: int


@dataclass(frozen=True)
class DirectionTest:
    """Whether residuals lean along a direction."""

    statistic: Real
    p_value: Real
    cosine: Real
    steps: int


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
    coordinates: int


@dataclass(frozen=True)
class SamplingTest:
    """Whether batches have the sizes that Poisson sampling gives them."""

    rate: Real
    """The share of records that took part."""
    dispersion: Real
    """The variance of the sizes over that of the binomial."""
    p_value: Real
    batches: int


@dataclass(frozen=True)
class Residuals:
    """Tests of what is left of the aggregates; None for those that could not be made."""

    noise: NoiseTest
    repeats: DirectionTest | None
    """Whether the noise of a round looks like that of rounds before."""
    scale: ScaleTest | None
    shape: ShapeTest | None
    sampling: SamplingTest | None
    confidence: Real
    note: str


@dataclass(frozen=True)
class Interval:
    """Around an estimate."""

    low: Real
    high: Real
    confidence: Real


@dataclass(frozen=True)
class CanaryEstimate:
    """What the canaries' scores suggest: an estimate, proven of nothing."""

    mu: Real
    mu_interval: Interval
    epsilon: Real
    epsilon_interval: Interval
    delta: Real
    method: str
    assumes: str
    reason: str | None
    """Why there is none."""


@dataclass(frozen=True)
class Spread:
    """Quantiles of an epsilon over the trials, and the share above that of one canary."""

    low: Real
    median: Real
    high: Real
    above: Real


@dataclass(frozen=True)
class CanaryScores:
    """Histograms of the scores of canaries that were in the training and that were not."""

    edges: list[Real]
    included: list[int]
    excluded: list[int]


@dataclass(frozen=True)
class OneRun:
    """What canaries prove in a single training."""

    kind: str
    known_data: bool
    """Whether scores leave out what the data add."""
    unit: str
    count: int
    clients: list[int]
    """Where they were planted."""
    included: int
    """How many took part in the headline's trial."""
    trials: int
    headline_trial: int
    delta: Real
    confidence: Real
    claimed_epsilon: Real
    """Of the guarantee towards a participant."""
    canary_mu: Real
    """Of one canary, by the noise claimed, towards whoever sees the aggregates alone."""
    canary_epsilon: Real
    bounds: Mapping[str, LowerBound]
    """Of the headline's trial."""
    estimate: CanaryEstimate
    spread: Mapping[str, Spread] | None
    """Over all trials; None for one."""
    scores: CanaryScores
    alarm: str | None
    """What contradicts the claim."""
    note: str


@dataclass(frozen=True)
class Crafted:
    """What a crafted target, or a group of copies, proves about one record."""

    kind: str
    copies: int
    label: int | None
    description: str
    initialisation: str
    delta: Real
    confidence: Real
    epsilon: Real
    """Of one record, tight at delta."""
    group_epsilon: Real
    """Of all copies."""
    lower_bounds: Mapping[str, LowerBound]
    """On epsilon of one record, by group privacy."""


@dataclass(frozen=True)
class Series:
    """A mean over the trials, and the band of 90 % of them, before the first round and after each;
    None after a model has diverged."""

    mean: list[Real | None]
    low: list[Real | None]
    high: list[Real | None]


@dataclass(frozen=True)
class Utility:
    """What the global model is worth."""

    rounds: list[int]
    accuracy: Series
    loss: Series
    trials: int
    records: int


@dataclass(frozen=True)
class Variance:
    """Of the advantage under common random numbers, over that of independent ones."""

    measured: Real | None
    predicted: Real | None


@dataclass(frozen=True)
class Campaign:
    """How the trials were played, and why there were no more."""

    trials: int
    planned: int
    """Of how many the report is if none was spared."""
    extended_from: int | None
    pairing: str
    until_halfwidth: Real | None
    halfwidth: Real | None
    """Half the length of the advantage's interval."""
    interim_analyses: list[tuple[int, Real]] | None
    """Trials and share of the significance of each that was planned."""
    precise: bool | None
    """Whether it stopped because it was precise enough; None where all trials are run anyway."""
    reason: str
    variance: Variance | None
    validity: str | None
    """What stays valid of numbers whose trials share random numbers or stopped early."""
