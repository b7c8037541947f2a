"""The state of a live auditor for each batch of trials, and its results after a round."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from scipy.special import expit

from adversaries.arrays import Floats
from fedsim.federation.transcripts.records import ObservedRound
from fedsim.game.observers.memory import Memory
from fedsim.privacy.mechanism import Steps


@dataclass(frozen=True)
class Belief:
    """An auditor's beliefs about one batch of trials after a round.

    Rounds that the auditor missed count in epsilon: the models that it did see contain what they
    released. The same holds for rounds of interrupted attempts at this training.

    Attributes:
        log_odds: for D, float64 [T].
        sensitivities: of the round, float64 [T].
        noise_stds: of the round, float64 [T].
        epsilon: epsilon of the noise so far at this vantage, at the configured delta.
        missed: number of rounds of this training that the auditor did not see.
    """

    first_trial: int
    round: int
    log_odds: Floats
    sensitivities: Floats
    noise_stds: Floats
    epsilon: float
    rho_beta: float
    missed: int

    def as_json(self) -> dict[str, Any]:
        beliefs = expit(self.log_odds)
        return {
            "trials": [self.first_trial, self.first_trial + len(self.log_odds)],
            "round": self.round,
            "log_odds": self.log_odds.tolist(),
            "belief": {"mean": float(beliefs.mean()), "highest": float(beliefs.max())},
            "epsilon": self.epsilon,
            "rho_beta": self.rho_beta,
            "missed": self.missed,
        }


@dataclass(frozen=True, kw_only=True)
class CanaryFindings:
    """The signal of the clients' canaries, in standard deviations of all that hides it.

    Attributes:
        mu: signal of one canary in one training so far; None where `reason` says why not.
        interval: ends of the interval of mu.
        claimed_mu: what the claimed noise allows.
        canaries: number of canaries.
        belief: mean belief in a canary's true state.
        epsilon_at_least: lower bound by guessing the canaries; None where it does not apply.
    """

    mu: float | None
    interval: list[float]
    p_value: float | None
    reason: str | None
    claimed_mu: float | None
    canaries: int
    belief: float | None
    advantage: float | None
    advantage_interval: list[float]
    epsilon_at_least: float | None

    @property
    def over(self) -> bool:
        """Whether the signal is larger than the claimed noise allows, at the confidence."""
        return self.claimed_mu is not None and self.interval[0] > self.claimed_mu


@dataclass(frozen=True)
class LiveLook:
    """The results of an auditor without records after a round of a batch of trials.

    Attributes:
        epsilon: as in `Belief`, like rho_beta and missed.
        noise_at_most: largest possible noise of the sum and of each client's message, over the
            claimed; empty where it is not judged.
    """

    trials: range
    round: int
    epsilon: float
    rho_beta: float
    missed: int
    noise_at_most: Mapping[str, float]
    canaries: CanaryFindings | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"trials": [self.trials.start, self.trials.stop]}


@dataclass
class LiveBatch:
    """One batch of trials, as far as it was observed.

    Attributes:
        memory: memory of a participant that saw the same.
        earlier: number of rounds of interrupted attempts.
        before: number of rounds that all trainings had released when it began.
        groups: accounted rounds, equal ones together.
        previous: last message; None before the first.
        concluded: last round whose sum is known.
        missed: number of rounds without a result.
    """

    trials: range
    memory: Memory
    nominal: float
    earlier: int
    before: int
    groups: list[Steps]
    rounds: int = 0
    previous: ObservedRound | None = None
    concluded: int = 0
    missed: int = 0

    def add(self, steps: Steps, rounds: int) -> None:
        self.groups.append(steps)
        self.rounds += rounds
