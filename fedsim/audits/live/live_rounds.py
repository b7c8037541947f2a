"""What an auditor's node receives, the noise of its rounds, and its results after a round."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, ValidationError
from scipy.special import expit, ndtri

from adversaries.arrays import Bools, Floats
from adversaries.bounds import canaries
from adversaries.bounds.gaussian_bounds import LARGEST_EFFECT
from adversaries.statistics.intervals import significance
from adversaries.statistics.noncentral import lower_limit
from fedsim.audits.run.detectable import POWER
from fedsim.configuration.federation import FederationConfig
from fedsim.configuration.privacy import PrivacyConfig
from fedsim.configuration.training import TrainingConfig
from fedsim.federation.transcripts.records import ObservedRound, not_of_an_auditor
from fedsim.game.canary import Canaries
from fedsim.game.observers.memory import Memory
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism, Steps, aggregate_noise_multiplier


class LiveRequest(BaseModel):
    """A message's request, as an auditor's node recorded it.

    Attributes:
        released: number of rounds that all trainings had released when this one began.
    """

    model_config = ConfigDict(strict=True, frozen=True)

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
        named = {name: f"request.{name.replace('_', '-')}" for name in cls.model_fields}
        values = {name: observed.mechanism.get(key) for name, key in named.items()}
        try:
            request = cls.model_validate(values)
        except ValidationError:
            raise not_of_an_auditor(observed) from None
        if "parameters" not in observed.model:
            raise not_of_an_auditor(observed)
        return request


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
class Look:
    """What an auditor knows of one batch of trials after a round.

    Rounds that the auditor missed count in epsilon: the models that it did see contain what they
    released. The same holds for rounds of interrupted attempts at this training.

    Attributes:
        missed: number of rounds of this training that the auditor did not see.
        log_odds: for D, float64 [T], like the round's sensitivities and noise_stds; [0] where the
            challenge is not audited.
        noise_at_most: largest possible noise of the sum and of each client's message, over the
            claimed; empty where it is not judged.
    """

    trials: range
    round: int
    epsilon: float
    rho_beta: float
    missed: int
    log_odds: Floats = field(default_factory=partial(np.empty, 0))
    sensitivities: Floats = field(default_factory=partial(np.empty, 0))
    noise_stds: Floats = field(default_factory=partial(np.empty, 0))
    noise_at_most: Mapping[str, float] = field(default_factory=dict)
    canaries: CanaryFindings | None = None

    def as_json(self) -> dict[str, Any]:
        ends = [self.trials.start, self.trials.stop]
        known = {"trials": ends, "round": self.round, "missed": self.missed}
        known |= {"epsilon": self.epsilon, "rho_beta": self.rho_beta}
        if not self.log_odds.size:
            found = None if self.canaries is None else asdict(self.canaries)
            return known | {"noise_at_most": self.noise_at_most, "canaries": found}
        beliefs = expit(self.log_odds)
        both = {"mean": float(beliefs.mean()), "highest": float(beliefs.max())}
        return known | {"log_odds": self.log_odds.tolist(), "belief": both}


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
class CanaryWatch:
    """The canaries whose seeds the auditor has, in what a federation releases.

    Each batch of trials has coins bool [T, K], sums of its scores [T, K], and mu^2.

    Attributes:
        norm: C, the clipping norm and length of every canary.
    """

    planted: Sequence[Canaries]
    norm: float
    _batches: dict[int, tuple[Bools, Floats, float]] = field(default_factory=dict)

    def begin(self, trials: range) -> None:
        """Begin a batch of trials; observations of an earlier attempt are dropped."""
        self._batches.pop(trials.start, None)

    def observe(
        self, trials: range, round: int, released: npt.NDArray[np.floating], std: float
    ) -> None:
        if not std > 0:
            return
        if trials.start in self._batches:
            coins, ratios, power = self._batches[trials.start]
        else:
            coins = np.concatenate([each.coins(trials) for each in self.planted], axis=1)
            ratios, power = np.zeros(coins.shape), 0.0
        along = [each.along(trials, round, released) for each in self.planted]
        added = (self.norm / std) ** 2
        ratios = ratios + self.norm / std**2 * np.concatenate(along, axis=1) - added / 2
        self._batches[trials.start] = coins, ratios, power + added

    @property
    def coins(self) -> Bools:
        return np.concatenate([[], *(coins.ravel() for coins, _, _ in self._batches.values())]) > 0

    @property
    def sides(self) -> tuple[int, int]:
        return int(self.coins.sum()), int((~self.coins).sum())

    def effect(self, confidence: float) -> canaries.Effect | None:
        parts = [ratios.ravel() / math.sqrt(power) for _, ratios, power in self._batches.values()]
        return canaries.effect(self.coins, np.concatenate(parts), confidence) if parts else None

    def prediction(self) -> float | None:
        """Return mu by the claimed noise, for the training with the least noise; None without any.

        It is an upper bound of what shows, since other records hide a canary too.
        """
        powers = [power for _, _, power in self._batches.values()]
        return math.sqrt(max(powers)) if powers else None

    def telling(self, confidence: float) -> bool:
        """Return whether half of the noise would raise the alarm, with probability 95 %.

        It doubles the signal. The alarm is that its lower limit is above the claimed signal.
        """
        claimed, (one, other) = self.prediction(), self.sides
        if not claimed or min(one, other) < 2:
            return False
        scale, freedom = math.sqrt(1 / one + 1 / other), one + other - 2
        # The standard error of a signal of 2 mu is that of noncentral t, at large freedom.
        error = math.sqrt(scale**2 + 2 * claimed**2 / freedom)
        least = min(2 * claimed - ndtri(POWER) * error, LARGEST_EFFECT)
        tail = significance(confidence) / 2
        return lower_limit(max(0.0, least) / scale, freedom, tail) * scale > claimed

    def belief(self) -> float | None:
        """Return the mean belief in a canary's true state; None without canaries.

        It starts at 1/2 and assumes the claimed noise.
        """
        right = [np.where(coins, ratios, -ratios) for coins, ratios, _ in self._batches.values()]
        return (
            float(expit(np.concatenate([each.ravel() for each in right])).mean()) if right else None
        )
