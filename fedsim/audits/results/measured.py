"""What the trials showed: the part of a report that rests on measurements."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from adversaries.statistics import agreement, intervals
from adversaries.statistics.one_run import CanaryEstimate
from fedsim.audits.results.numbers import REALS, Ends, Real
from fedsim.audits.results.quality import Quality
from fedsim.audits.results.theory import Predicted


@dataclass(frozen=True)
class LowerBound(intervals.LowerBound):
    """What an estimator proves of epsilon at delta: its result as report.json holds it."""

    p_value: Real | None = None
    """How often chance alone puts it above the epsilon of theory; None unless it is above."""


Bound = Annotated[LowerBound, REALS]


@dataclass(frozen=True)
class Headline:
    """The lower bound that the report leads with."""

    name: str
    """Its key in lower_bounds."""
    epsilon: Real
    """Its value; 0 proves nothing."""
    confidence: Real
    """In (0, 1), with which it holds."""
    rule: str
    """By which it was chosen in advance."""


@dataclass(frozen=True)
class Agreement:
    """Whether what trusts the claimed noise agrees with what does not."""

    agree: bool | None
    """None where nothing could be compared."""
    comparisons: list[Annotated[agreement.Comparison, REALS]]
    """Those that could be made."""


@dataclass(frozen=True)
class Band:
    """An estimate over a grid, with its confidence band."""

    estimate: list[Real]
    """Of delta, one for each epsilon of the grid."""
    low: list[Real]
    """Lower ends of the band, as many."""
    high: list[Real]
    """Upper ends of the band, as many."""


@dataclass(frozen=True)
class PrivacyProfile:
    """Delta as a function of epsilon."""

    epsilon: list[Real]
    """The grid, rising; every other list here is as long."""
    theory: list[Real]
    """Of the claimed mechanism."""
    directions: Mapping[str, Band]
    """By the world in which log-odds were measured."""
    note: str
    """What the band is proof of."""


@dataclass(frozen=True)
class EstimatedEpsilons:
    """The paper's estimates of epsilon; None where one does not apply."""

    sensitivity: Real | None
    """From sensitivities, by the paper's accountant."""
    sensitivity_exact: Real | None
    """The same by the privacy loss distribution."""
    belief: Real | None
    """The log-odds of the most extreme trial."""
    advantage: Real | None
    """At which the measured advantage would be the bound."""


@dataclass(frozen=True)
class SensitivityByRound:
    """Local sensitivities of each round, over the trials."""

    rms: list[Real]
    """Root mean square, one for each round."""
    low: list[Real]
    """5% quantile, one for each round."""
    median: list[Real]
    """One for each round."""
    high: list[Real]
    """95% quantile, one for each round."""


@dataclass(frozen=True)
class Empirical:
    """What was measured at the configured vantage; None for what is no finding of the trials."""

    advantage: Real | None
    """True less false positive rate, in [-1, 1]."""
    advantage_interval: Ends | None
    """None where all trials are of one world."""
    standard_error: Real | None
    """Of the advantage."""
    confidence: Real
    """Of every interval and bound here, in (0, 1)."""
    wins: int | None
    """Trials of which the adversary named the world."""
    losses: int | None
    """Trials of which it named the other."""
    ties: int | None
    """Trials whose log-odds decide for neither."""
    delta_prime: Real | None
    """The share of trials on D whose belief passed rho_beta."""
    delta_prime_interval: Ends | None
    """None where it is no finding."""
    epsilon: EstimatedEpsilons
    """Estimates, which prove nothing."""
    lower_bounds: Mapping[str, Bound]
    """By the name of the estimator."""
    headline: Headline
    """The one of them that was chosen in advance."""
    agreement: Agreement
    """Between those that trust the claimed noise and those that do not."""
    privacy_profile: PrivacyProfile | None
    """None where log-odds are no exact likelihood ratios."""
    sensitivity_rms: Real
    """Root mean square over all rounds and trials."""
    sensitivity_max: Real
    """Over all rounds and trials."""
    sensitivity_by_round: SensitivityByRound
    """Over the trials of each round."""
    sensitivity_note: str
    """What a local sensitivity is, in a sentence."""
    sensitivity_bound: Real | None
    """What clipping allows in a round; None where nothing bounds it."""


@dataclass(frozen=True)
class VantageEmpirical:
    """What was measured at any vantage."""

    advantage: Real | None
    """True less false positive rate, in [-1, 1]."""
    advantage_interval: Ends | None
    """None where all trials are of one world."""
    standard_error: Real | None
    """Of the advantage."""
    confidence: Real
    """Of the interval and the lower bound, in (0, 1)."""
    delta_prime: Real | None
    """The share of trials on D whose belief passed rho_beta."""
    belief: Real
    """Of the most extreme trial."""
    epsilon_belief: Real
    """The log-odds of the most extreme trial."""
    lower_bound: Bound
    """On epsilon towards this vantage."""
    surely_at_least: Real | None
    """The advantage, as surely as an alarm must be."""
    within_bound: bool | None
    """None where there are not trials of both worlds."""
    near_prediction: bool | None
    """As surely as an alarm must be; None where that cannot be told."""


@dataclass(frozen=True)
class AtVantage:
    """Bounds, prediction and measurement at one vantage."""

    noise_multiplier: Real | None
    """Of the noise that it cannot remove; None where it differs between rounds."""
    epsilon: Real
    """Tight; infinite where there is no such noise."""
    rho_beta: Real
    """The belief that the worst pair passes only rarely."""
    rho_alpha: Real
    """The advantage that no adversary exceeds there, in [0, 1]."""
    exact_posterior: bool
    """Whether log-odds are the exact posterior's there."""
    prediction: Predicted | None
    """None where nothing was measured; the note says why."""
    empirical: VantageEmpirical | None
    """None where nothing was measured."""
    note: str
    """Why nothing was measured, or what log-odds are there; "" for nothing."""


@dataclass(frozen=True)
class MembershipAttack:
    """What an attack by losses achieved; None for what it does not have."""

    advantage: Real | None
    """True less false positive rate, in [-1, 1]."""
    advantage_interval: Ends | None
    """Over fresh records and trials."""
    advantage_interval_of_these: Ends | None = None
    """About the records of this run alone."""
    tpr: Real | None = None
    """The share of members that it took for members."""
    fpr: Real | None = None
    """The share of others that it took for members."""
    area: Real | None = None
    """Under the curve of true against false positive rates."""
    area_interval: Ends | None = None
    """At the confidence of the report."""
    shadow_trials: int | None = None
    """Of which it knew the worlds."""
    games: int | None = None
    """On which it was judged."""


@dataclass(frozen=True)
class Crafted:
    """What a crafted target, or a group of copies, proves about one record."""

    kind: str
    """How it was crafted, as in `challenge.kind`."""
    copies: int
    """How many of it D has."""
    label: int | None
    """The class that it was given; None where it has none."""
    description: str
    """What its kind is, in words."""
    initialisation: str
    """Of the models of the trials, as in `model.initialisation`."""
    delta: Real
    """Of every epsilon here."""
    confidence: Real
    """Of every bound here, in (0, 1)."""
    epsilon: Real
    """Of one record, tight at delta."""
    group_epsilon: Real
    """Of all copies."""
    lower_bounds: Mapping[str, Bound]
    """On epsilon of one record, by group privacy."""


@dataclass(frozen=True)
class Series:
    """A mean over the trials, and the band of 90 % of them, before the first round and after each;
    None after a model has diverged."""

    mean: list[Real | None]
    """k + 1 of them for k rounds."""
    low: list[Real | None]
    """5% quantile, as many."""
    high: list[Real | None]
    """95% quantile, as many."""


@dataclass(frozen=True)
class ByClient:
    """How well the models serve single clients: measured on the data itself, in the first trial."""

    rounds: list[int]
    """After which it was measured; 0 for the first model."""
    clients: int
    """How many were looked at, spread evenly over all."""
    accuracy: Series
    """Of the global model on a client's own records: mean and quantiles over the clients."""
    weighted: list[Real | None]
    """The same over all their records, so that clients count by how many they have."""
    own_models: Series | None
    """Of what a client has after its own training, on the held-out records; None for records."""


@dataclass(frozen=True)
class Utility:
    """What the global model is worth."""

    rounds: list[int]
    """0 before the first, to k after the last."""
    accuracy: Series
    """Shares of the records, in [0, 1]."""
    loss: Series
    """The mean of the training's loss over the records."""
    trials: int
    """Over which mean and band are."""
    records: int
    """Held out, on which it was measured."""
    majority: Real
    """Share of the most frequent label: the accuracy of a model that has learnt nothing."""
    balanced_accuracy: Real | None
    """Of the final models: the mean over the classes of the share that is right."""
    area_under_curve: Real | None
    """Of the final models: under the ROC curve, of more than two classes the mean over each against
    the rest; None where it was not measured."""
    by_client: ByClient | None
    """None where no simulation could measure it."""
    task: str = "classification"
    """model.task."""
    baseline_loss: Real | None = None
    """The mean loss of a model that has learnt nothing; None where only accuracies are compared."""
    quality: Quality | None = None
    """Of the final models, class by class, with intervals over trainings like these; None where it
    was not measured."""


@dataclass(frozen=True)
class Variance:
    """Of the advantage under common random numbers, over that of independent ones."""

    measured: Real | None
    """From this run's pairs; None where independent trials would have none."""
    predicted: Real | None
    """From the predicted advantage; None without a prediction."""


@dataclass(frozen=True)
class Campaign:
    """How the trials were played, and why there were no more."""

    trials: int
    """Of which the report is."""
    planned: int
    """Of how many the report is if none was spared."""
    extended_from: int | None
    """How many were planned at first; None where nothing was added."""
    pairing: str
    """"independent", or "common" for pairs of trials with common random numbers."""
    until_halfwidth: Real | None
    """At which trials stop; None where all are run."""
    halfwidth: Real | None
    """Half the length of the advantage's interval."""
    interim_analyses: list[tuple[int, Real]] | None
    """Trials and share of the significance of each that was planned."""
    precise: bool | None
    """Whether it stopped because it was precise enough; None where all trials are run anyway."""
    reason: str
    """Why there are no more trials, in words."""
    variance: Variance | None
    """None where trials are independent."""
    validity: str | None
    """What stays valid of numbers whose trials share random numbers or stopped early."""


@dataclass(frozen=True)
class Spread:
    """Quantiles of an epsilon over the trials, and the share above that of one canary."""

    low: Real
    """5% quantile."""
    median: Real
    """50% quantile."""
    high: Real
    """95% quantile."""
    above: Real
    """A share in [0, 1]."""


@dataclass(frozen=True)
class CanaryScores:
    """Histograms of the scores of canaries that were in the training and that were not."""

    edges: list[Real]
    """Of the bins, rising: one more than there are bins."""
    included: list[int]
    """Canaries in each bin that were in the training."""
    excluded: list[int]
    """Canaries in each bin that were not."""


@dataclass(frozen=True)
class OneRun:
    """What canaries prove in a single training."""

    kind: str
    """What a canary is, as in `canaries.kind`."""
    known_data: bool
    """Whether scores leave out what the data add."""
    unit: str
    """Whom a canary stands for: "record" or "client"."""
    count: int
    """Canaries of a trial, in and out."""
    clients: list[int]
    """Where they were planted."""
    included: int
    """How many took part in the headline's trial."""
    trials: int
    """With canaries."""
    headline_trial: int
    """Which one, from 0, was to lead: chosen in advance."""
    delta: Real
    """Of every epsilon here."""
    confidence: Real
    """Of every bound here, in (0, 1)."""
    claimed_epsilon: Real
    """Of the guarantee towards a participant."""
    canary_mu: Real
    """Of one canary, by the noise claimed, towards whoever sees the aggregates alone."""
    canary_epsilon: Real
    """What canary_mu comes to at delta."""
    bounds: Mapping[str, Bound]
    """Of the headline's trial."""
    estimate: Annotated[CanaryEstimate, REALS]
    """Of the headline's trial."""
    spread: Mapping[str, Spread] | None
    """Over all trials; None for one."""
    scores: CanaryScores
    """Of the canaries' scores in the headline's trial."""
    alarm: str | None
    """What contradicts the claim."""
    note: str
    """What a reader must know of the canaries; "" for nothing."""
    score: str = "sums"
    """Where canaries were looked for, as in `canaries.score`."""
