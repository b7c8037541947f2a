"""What a live auditor keeps of each batch of trials, and what it finds after a round of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from fedsim.federation.transcripts.records import ObservedRound
from fedsim.game.observers.memory import Memory
from fedsim.privacy.mechanism import Steps

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Belief:
    """What an auditor believes of one batch of trials after a round.

    Of rounds that the auditor missed, the models that it did see carry what they released; so do
    they of attempts at this training that were interrupted. All of them count in epsilon.

    Attributes:
        first_trial: of the batch.
        round: counts from 1.
        log_odds: for D, float64 [T].
        sensitivities: of the round, float64 [T].
        noise_stds: of the round, float64 [T].
        epsilon: what the noise so far allows this vantage point at the configured delta.
        rho_beta: the bound on belief that it gives.
        missed: how many rounds of this training the auditor did not see.
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
        """Return one line of beliefs.jsonl, before infinity is worded."""
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


@dataclass(frozen=True)
class Look:
    """What an auditor without records finds after a round of a batch of trials.

    Attributes:
        trials: the numbers of the batch's.
        round: counts from 1.
        epsilon: as in `Belief`, like rho_beta and missed.
        noise_at_most: how many times the claimed noise the sum, and each client's message, has at
            most; empty where that is not judged.
        canaries: what they show, as of `canary_findings`; None without any.
        texts: what planted texts prove, as of `text_findings`; None without any.
    """

    trials: range
    round: int
    epsilon: float
    rho_beta: float
    missed: int
    noise_at_most: Mapping[str, float]
    canaries: Mapping[str, Any] | None
    texts: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return one line of beliefs.jsonl, before infinity is worded."""
        return {**vars(self), "trials": [self.trials.start, self.trials.stop]}


@dataclass
class Training:
    """One batch of trials, as far as it was seen.

    Attributes:
        memory: of a participant who saw as much.
        earlier: the rounds of attempts that were interrupted.
        before: how many rounds all trainings had released when it began.
        groups: the rounds that are accounted, alike ones together.
        rounds: how many these are.
        previous: the last message; None before there is one.
        concluded: the last round whose sum is known.
        missed: how many rounds nothing could be concluded from.
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
        """Count rounds that are alike."""
        self.groups.append(steps)
        self.rounds += rounds
