"""One row for each observer: what theory allows it, what its adversary achieved, and its state."""

from dataclasses import dataclass, field
from typing import Literal

from fedsim.audits.results.numbers import Ends, Real
from fedsim.audits.results.theory import Predicted
from fedsim.audits.results.verdicts import State

Answer = Literal["meets", "misses", "cannot-tell"]


@dataclass(frozen=True)
class WorstOff:
    """What theory allows about the client that takes part in most rounds."""

    epsilon: Real
    """Tight epsilon, at the delta of the report."""
    rho_beta: Real
    """Belief bound of this epsilon."""
    rho_alpha: Real
    """Advantage that no adversary exceeds."""
    risks: list[tuple[Real, Real]]
    """Success of an attack without the release, and its largest with it."""


@dataclass(frozen=True)
class Limit:
    """What theory allows an observer about the target's client, in one training."""

    epsilon: Real
    """Tight epsilon, at the delta of the report; infinite where no noise hides the target."""
    rho_beta: Real
    """Belief that is passed only rarely."""
    exceeded: Real
    """Upper bound on the share of trainings on D in which any pair passes rho_beta; 1 for none."""
    rho_alpha: Real
    """Advantage that no adversary exceeds, in [0, 1]; 1 for no limit."""
    noise_multiplier: Real | None
    """Multiplier of the noise that the observer cannot remove; None where rounds differ."""
    worst: WorstOff | None
    """Bounds of the worst-off client; None where the target's client is as badly off."""
    risks: list[tuple[Real, Real]]
    """Success of an attack without the release, and its largest with it."""
    note: str
    """Caution about these numbers; "" for none."""

    @property
    def largest(self) -> WorstOff:
        """What theory allows about any client."""
        return self.worst or WorstOff(self.epsilon, self.rho_beta, self.rho_alpha, self.risks)


@dataclass(frozen=True)
class Attack:
    """What an adversary achieved over the trials, from even odds."""

    advantage: Real | None
    """True less false positive rate, in [-1, 1]; None without trials of both worlds."""
    interval: Ends | None
    """Interval of the advantage; None where all trials are of one world."""
    standard_error: Real | None
    """Standard error of the advantage."""
    confidence: Real
    """Confidence of every interval and bound here, in (0, 1)."""
    trials: int
    """Number of trials."""
    chance: Real | None
    """Advantage that a coin toss stays below in as many trials, with the same confidence."""
    log_odds: Real
    """Log-odds of the most extreme trial; infinite for certainty."""
    belief: Real
    """Largest belief in D of any trial on D, at least even odds."""
    delta_prime: Real | None
    """Share of trials on D whose belief passed rho_beta; None for a single training."""
    delta_prime_interval: Ends | None
    """Interval of delta_prime, at the same confidence."""
    above_own_limit: Real | None
    """Share of trials on D whose belief passed the organisation's limit; None without a limit."""
    epsilon_at_least: Real
    """Lower bound on epsilon; 0 proves nothing."""
    estimator: str
    """Estimator of the lower bound, chosen in advance: "one_run" for canaries, else its name in
    `empirical.lower_bounds`."""
    best: bool
    """Whether the adversary decides by the exact posterior, so that none does better."""
    near_prediction: bool | None
    """Whether the advantage agrees with its prediction, at the confidence of an alarm; None where
    the trials cannot tell."""


@dataclass(frozen=True)
class OwnLimit:
    """An observer against a limit that the organisation set."""

    of: Literal["advantage", "belief"]
    """Quantity that is limited."""
    limit: Real
    """The limit, as configured in `report`."""
    answer: Answer
    """By theory it holds for every pair of neighbours; by measurement for this target alone."""
    by: Literal["measured", "theory"]
    """Basis of the answer; for "cannot-tell", the last one that was tried."""
    trials: int | None
    """Trials that would tell with probability 80 %, if the measurement stays the same; None where
    the answer is already known, or where no number would tell."""


@dataclass(frozen=True)
class Row:
    """One observer: its limit, its measurement, and how the two agree."""

    observer: str
    """"server", "participant" or "released-model"."""
    standing: State
    """State of the measurement against theory."""
    limit: Limit
    """What theory allows."""
    attack: Attack | None
    """None where nothing was measured; the note says why."""
    predicted: Predicted | None
    """Theory's prediction for these trials; None where nothing was measured."""
    detects: Real | None
    """Share of the claimed noise below which the audit would have raised an alarm with probability
    95 %. 0: it could detect no shortfall. None: nothing was measured, or nothing is claimed."""
    note: str
    """Why nothing was measured, or what the log-odds are; "" for neither."""
    own_limits: list[OwnLimit] = field(default_factory=list)
    """One for each limit that is configured."""
