"""What an auditor's node receives, the noise of its rounds, and its results after a round."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from adversaries.arrays import Bools, Floats
from adversaries.bounds import canaries
from fedsim.configuration.federation import FederationConfig
from fedsim.configuration.privacy import PrivacyConfig
from fedsim.configuration.training import TrainingConfig
from fedsim.federation.transcripts.records import ObservedRound, not_of_an_auditor
from fedsim.game.canary import Canaries
from fedsim.game.observers.memory import Memory
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism, Steps, aggregate_noise_multiplier


@dataclass(frozen=True)
class LiveRequest:
    """A message's request, as an auditor's node recorded it.

    Attributes:
        released: number of rounds that all trainings had released when this one began.
    """

    first_trial: int
    record: int
    replacement: int
    target_client: int
    noise_multiplier: float
    earlier: int
    released: int
    begun: int

    @classmethod
    def of(cls, observed: ObservedRound) -> Self:
        """Return the request of a recorded message.

        Raises InputError if it has none, or one whose values are of another type.
        """
        types = {each.name: (int, float) if each.type is float else (int,) for each in fields(cls)}
        values: dict[str, Any] = {
            name: observed.mechanism.get(f"request.{name.replace('_', '-')}") for name in types
        }
        well_typed = all(type(values[name]) in allowed for name, allowed in types.items())
        if not well_typed or "parameters" not in observed.model:
            raise not_of_an_auditor(observed)
        return cls(**values)


@dataclass(frozen=True)
class Belief:
    """An auditor's beliefs about one batch of trials after a round.

    Rounds that the auditor missed count in epsilon: the models that it did see contain what they
    released. The same holds for rounds of interrupted attempts at this training.

    Attributes:
        log_odds: for D, float64 [T].
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
    """The signal of the clients' canaries, in standard deviations of all that hides it."""

    mu: float | None
    """Signal of one canary in one training so far; None where `reason` says why not."""
    interval: list[float]
    reason: str | None
    """Why there is no signal; None if there is one."""
    claimed_mu: float | None
    """Signal that the claimed noise allows."""
    canaries: int
    belief: float | None
    """Mean belief in a canary's true state."""

    @property
    def least(self) -> float | None:
        """The lower end of mu; None without a signal."""
        return None if self.reason is not None else self.interval[0]

    @property
    def over(self) -> bool:
        """Whether the signal is larger than the claimed noise allows, at the confidence."""
        return self.claimed_mu is not None and self.interval[0] > self.claimed_mu


@dataclass(frozen=True)
class LiveLook:
    """The results of an auditor without records after a round of a batch of trials.

    Attributes:
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
        earlier: number of rounds of interrupted attempts.
        before: number of rounds that all trainings had released when it began.
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


@dataclass(frozen=True)
class LiveAccounting:
    """Accounts for rounds, for an observer without noise of its own.

    An auditor that receives single messages faces as little noise as the server.
    """

    federation: FederationConfig
    training: TrainingConfig
    privacy: PrivacyConfig

    def mechanism(self, groups: Iterable[Steps]) -> Mechanism:
        return Mechanism(tuple(groups), self.privacy.neighbouring)

    def epsilon(self, groups: Iterable[Steps]) -> float:
        return PLD.epsilon(self.mechanism(groups), self.privacy.delta)

    def everything(self, batches: Sequence[LiveBatch]) -> Mechanism:
        """Return the noise of all rounds of all trials together.

        Rounds that the transcript lacks, such as those before an interruption, count as the server
        states them, with the least tolerated noise.
        """
        groups = [
            replace(group, count=group.count * len(batch.trials))
            for batch in batches
            for group in batch.groups
        ]
        last = max(batches, key=lambda batch: batch.before)
        count = sum(
            len(batch.trials) * (batch.earlier if batch is last else batch.rounds)
            for batch in batches
        )
        if last.before > count:
            groups.append(self.unseen(last.nominal, last.before - count))
        return self.mechanism(groups)

    def steps(self, nominal: float, sources: int, rounds: int) -> Steps:
        """Return rounds with this many clients."""
        if self.federation.auditor_sees == "messages":
            sources = 1  # a single message has only its own client's noise
        multiplier = nominal
        if self.training.local_steps == 1:
            # In a round of local steps, others' noise does not hide the models in between.
            multiplier = aggregate_noise_multiplier(
                nominal, self.federation.trust, self.federation.clients, sources
            )
        return Steps(
            multiplier if self.training.clipping else 0.0,
            rounds * self.training.local_steps,
            self.training.sampling_rate,
        )

    def unseen(self, nominal: float, rounds: int) -> Steps:
        """Return rounds without a result, with the least tolerated noise."""
        return self.steps(nominal, self.federation.fewest_participants, rounds)


@dataclass
class _Training:
    """The canaries of T trials: coins bool [T, K], sums of their scores [T, K], and mu^2."""

    coins: Bools
    ratios: Floats
    power: float = 0.0


@dataclass
class CanaryWatch:
    """The canaries whose seeds the auditor has.

    Attributes:
        norm: C, the clipping norm and length of every canary.
    """

    planted: Sequence[Canaries]
    norm: float
    _trainings: dict[int, _Training] = field(default_factory=dict)

    def begin(self, trials: range) -> None:
        """Begin a batch of trials; observations of an earlier attempt are dropped."""
        self._trainings.pop(trials.start, None)

    def observe(
        self, trials: range, round: int, released: npt.NDArray[np.floating], std: float
    ) -> None:
        if not std > 0:
            return
        training = self._trainings.get(trials.start)
        if training is None:
            coins = np.concatenate([each.coins(trials) for each in self.planted], axis=1)
            training = _Training(coins, np.zeros(coins.shape))
            self._trainings[trials.start] = training
        along = [each.along(trials, round, released) for each in self.planted]
        power = (self.norm / std) ** 2
        training.ratios += self.norm / std**2 * np.concatenate(along, axis=1) - power / 2
        training.power += power

    @property
    def coins(self) -> Bools:
        coins = [training.coins.ravel() for training in self._trainings.values()]
        return np.concatenate([np.zeros(0, bool), *coins])

    @property
    def scores(self) -> Floats:
        return self._of_each(lambda training: training.ratios / math.sqrt(training.power))

    @property
    def sides(self) -> tuple[int, int]:
        return int(self.coins.sum()), int((~self.coins).sum())

    def effect(self, confidence: float) -> canaries.Effect | None:
        return canaries.effect(self.coins, self.scores, confidence) if self._trainings else None

    def prediction(self) -> float | None:
        """Return mu by the claimed noise, for the training with the least noise; None without any.

        It is an upper bound of what shows, since other records hide a canary too.
        """
        if not self._trainings:
            return None
        return math.sqrt(max(training.power for training in self._trainings.values()))

    def belief(self) -> float | None:
        """Return the mean belief in a canary's true state; None without canaries.

        It starts at 1/2 and assumes the claimed noise.
        """
        if not self._trainings:
            return None
        ratios = self._of_each(lambda training: training.ratios)
        return float(expit(np.where(self.coins, ratios, -ratios)).mean())

    def _of_each(self, values: Callable[[_Training], Floats]) -> Floats:
        parts = [values(training).ravel() for training in self._trainings.values()]
        return np.concatenate([np.zeros(0), *parts])
