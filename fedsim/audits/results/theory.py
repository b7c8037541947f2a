"""What theory allows and predicts: the part of a report that no trial has changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from adversaries.statistics.estimators import Distance
from fedsim.audits.results.numbers import REALS, Real


@dataclass(frozen=True)
class VantageBounds:
    """What theory allows an adversary at one vantage."""

    trust: str
    """The trust under which it looks, that of the run."""
    vantage: str
    """"participant", "server" or "released-model"."""
    noise_multiplier: Real | None
    """Of the noise that this vantage cannot remove; None where it differs between rounds."""
    epsilon: Real
    """Tight; infinite where there is no such noise."""
    rho_beta: Real
    """The belief that the worst pair passes only with probability tail_probability."""
    rho_alpha: Real
    """The advantage that no adversary exceeds there, in [0, 1]."""
    tail_probability: Real | None
    """How often the worst pair's privacy loss is above epsilon; None if unknown."""
    theorem2_rho_alpha: Real
    """The paper's printed value, which is no bound."""
    yeom_bound: Real
    """e^epsilon - 1; vacuous above 1."""
    note: str
    """What a reader must know of these numbers; "" for nothing."""


@dataclass(frozen=True)
class Bounds:
    """What theory allows an adversary at the configured vantage, of one training, at delta."""

    epsilon: Real
    """By the configured accountant."""
    delta: Real
    """Of every epsilon here, in (0, 1)."""
    rho_beta: Real
    """The belief that the worst pair passes only with probability tail_probability."""
    rho_alpha: Real
    """The advantage that no adversary exceeds under the noise that was used."""
    tail_probability: Real | None
    """How often the privacy loss of the worst pair is above epsilon; None if unknown."""
    theorem2_rho_alpha: Real
    """The paper's printed value, which is no bound."""
    yeom_bound: Real
    """e^epsilon - 1, on the advantage of membership inference; vacuous above 1."""
    accountant: str
    """Its name, as in `privacy.accountant`."""
    tight_epsilon: Real
    """By the privacy loss distribution."""
    tight_rho_beta: Real
    """The belief that belongs to tight_epsilon."""
    tail_limit: Real
    """How often any pair passes rho_beta at most."""
    vantages: list[VantageBounds]
    """The same for each vantage, the configured one among them."""


@dataclass(frozen=True)
class Released:
    """What all trainings released together, where the noise is no seed's."""

    trainings: int
    """How many models of the same people left, those of interrupted attempts included."""
    rounds: int
    """Of all trainings together."""
    delta: Real
    """Of every epsilon here."""
    vantage: str
    """The configured one."""
    epsilon: Real
    """Of everything, towards the vantage."""
    rho_beta: Real
    """The belief that belongs to epsilon."""
    epsilon_of_one_training: Real
    """Towards the same vantage, for comparison."""
    vantages: Mapping[str, Real]
    """Epsilon of everything towards each vantage."""
    game: str
    """Who knew the target, beside its client, and what of that is not guaranteed."""


@dataclass(frozen=True)
class Budget:
    """What the rounds of one training cost the worst client of the worst batch of trials, at
    delta."""

    stop_at: Real | None
    """The epsilon at which training ends; None without a limit."""
    stop_at_delta: Real | None
    """Of stop_at; None without a limit."""
    delta: Real
    """Of every epsilon spent."""
    accountant: str
    """Its name, as in `privacy.accountant`."""
    vantage: str
    """Towards which `spent` is counted."""
    rounds_planned: int
    """Of one training, as configured."""
    rounds_run: int
    """Of one training; at most rounds_planned."""
    stopped: bool
    """Whether fewer rounds were run than planned."""
    epsilon: Mapping[str, Real]
    """Spent towards each vantage."""
    spent: Real
    """What the limit is on: of everything released where the noise is no seed's."""
    epsilon_by_round: list[Real]
    """Spent after each round, towards the configured vantage."""
    earlier_attempts: int
    """Rounds that interrupted attempts had released."""


@dataclass(frozen=True)
class Fit:
    """A Kolmogorov-Smirnov distance of log-odds from theory."""

    statistic: Real
    """In [0, 1]: the largest gap between the two distribution functions."""
    p_value: Real
    """How often chance alone brings so large a gap, or a larger one."""
    trials: int
    """Of this world."""


@dataclass(frozen=True)
class Fits:
    """How well the log-odds of each world follow theory; None where that cannot be told."""

    world_d: Fit | None
    """Of the trials on D."""
    world_d_prime: Fit | None
    """Of the trials on D'."""


@dataclass(frozen=True)
class Density:
    """A histogram of simulated final log-odds: n + 1 edges, n densities for each world."""

    edges: list[Real]
    """Of the bins, in log-odds for D, rising."""
    world_d: list[Real]
    """Per unit of log-odds, of trials on D."""
    world_d_prime: list[Real]
    """The same of trials on D'."""


@dataclass(frozen=True)
class Predicted:
    """What theory predicts for the trials of one vantage."""

    mu: Real | None
    """Signal to noise of all steps; None where no one number says it."""
    advantage: Real | None
    """None where the log-odds have no closed form."""
    standard_error: Real | None
    """Of a prediction by simulation."""
    method: str
    """"closed form", "simulation", "none", or in words what was computed."""


@dataclass(frozen=True)
class Prediction(Predicted):
    """What theory predicts for the configured vantage, and how well the run follows it."""

    deterministic: bool
    """Whether mu is the same in every trial."""
    fit: Fits
    """Of the log-odds after the last round."""
    density: Density | None
    """Of sampled steps, which were simulated."""
    distance: Annotated[Distance, REALS] | None = None
    """None where nothing tells."""


@dataclass(frozen=True)
class Pac:
    """What the run tells of the secret on average over its prior, and what that allows."""

    mutual_information: Real
    """Nats that all rounds tell at most."""
    success_bound: Real
    """On the probability that the adversary names the world, in [0.5, 1]."""
    advantage_bound: Real
    """2 success_bound - 1."""
    equivalent_epsilon: Real
    """Of the DP that would allow as much; no DP guarantee."""
    delta: Real
    """Of equivalent_epsilon."""
    realised_information: Real | None
    """The mean over the trials of what PAC noise came to; None for other noise."""
    released_information: Real | None
    """Nats of all trials together; None where the noise is the seed's."""
    budgeted: bool
    """Whether the noise was chosen by what it may tell."""
    prior: str
    """"pair" for D and D', "halves" for random halves of the data."""
    prior_description: str
    """The same in a sentence."""
    candidates: int
    """How many secrets the prior has; 2 of a pair."""
    candidate_success_bound: Real | None
    """How often anybody names the secret one of several candidates; None for a pair."""
    success: Real | None
    """Measured; None for a single training."""
    note: str
    """What a reader must know of these numbers; "" for nothing."""


@dataclass(frozen=True)
class OverTrials:
    """An epsilon of several trials."""

    mean: Real
    """Over the trials."""
    max: Real
    """Of the worst trial."""


@dataclass(frozen=True)
class BayesianByRound:
    """Epsilons after some of the rounds."""

    rounds: list[int]
    """After which, from 1, rising; some where all would be costly."""
    epsilon: list[Real]
    """After each of them, the mean over the trials."""
    epsilon_at_percentile: list[Real]
    """The same, for the share of people that percentile tells."""
    dp_epsilon: list[Real]
    """The tight epsilon of differential privacy after each of them."""


@dataclass(frozen=True)
class Bayesian:
    """What the Bayesian accountant says, from the distances that clients gathered."""

    delta: Real
    """Of every epsilon here."""
    gamma: Real
    """The probability that the estimate fails, in all rounds."""
    pairs: int
    """Distances in a round."""
    percentile: Real
    """The share of people of whom each has epsilon_at_percentile."""
    trials: int
    """With distances."""
    epsilon: OverTrials | None
    """None where it cannot be stated; the note says why."""
    epsilon_at_percentile: OverTrials | None
    """None where it cannot be stated."""
    orders: tuple[int, int] | None
    """The smallest and the largest order that decided."""
    dp_epsilon: Real
    """At the same delta; holds for every record."""
    worst_case_epsilon: Real | None
    """Of this accountant, were every distance what clipping allows."""
    by_round: BayesianByRound | None
    """None where epsilon cannot be stated."""
    note: str
    """What a reader must know, and why there is no epsilon; "" for nothing."""
