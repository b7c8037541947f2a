"""The audit of a federation while it runs, by an auditor that receives what every client receives.

It folds over the transcript of an auditor's node (`fedsim.auditor_app`), which has a round for
every message. In the round's model, "parameters" is theta [T, P] before the round, and "sum" is the
released sum [T, P] of the previous round. The participants are those of that sum. The mechanism is
the run's configuration with the message's request. The auditor knows D and D', like the embedded
adversary. It adds nothing to the sums and knows none of the noise, so that it faces the noise of
all clients together.

Some audits need no records: those of the sums' noise (`NoiseWatch`), and of consenting clients'
canaries (`CanaryWatch`). They remain for a training, which has no
challenge, and where the auditor may not know D.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from scipy.special import expit, ndtri

from adversaries.arrays import Bools, Floats
from adversaries.attacks.posterior import log_odds
from adversaries.bounds import canaries
from adversaries.bounds.gaussian_bounds import LARGEST_EFFECT
from adversaries.errors import InputError
from adversaries.statistics.intervals import significance
from adversaries.statistics.noncentral import lower_limit
from fedsim.audits.run.detectable import POWER
from fedsim.common import device
from fedsim.configuration import KNOWN_KEYS, Config, from_run_config
from fedsim.federation.transcripts.records import ObservedRound, not_of_an_auditor
from fedsim.game import federation
from fedsim.game.canary import Canaries
from fedsim.game.known_round import KnownRound
from fedsim.game.mechanisms.privacy import adds_up
from fedsim.game.observers import participant
from fedsim.game.observers.memory import Memory
from fedsim.game.observers.noise_watch import NoiseWatch, claimed_std, watchable
from fedsim.game.round_game import RoundGame
from fedsim.learning.data import BUNDLED
from fedsim.privacy import identifiability
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism, Steps, aggregate_noise_multiplier
from fedsim.privacy.participation.sampling import participation


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
    claimed_mu: float | None
    """Signal that the claimed noise allows."""
    canaries: int
    belief: float | None

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
        log_odds: for D, float64 [T]; [0] where the challenge is not audited.
        noise_at_most: largest possible noise of the sum and of each client's message, over the
            claimed; empty where it is not judged.
    """

    trials: range
    round: int
    epsilon: float
    rho_beta: float
    missed: int
    log_odds: Floats = field(default_factory=partial(np.empty, 0))
    noise_at_most: Mapping[str, float] = field(default_factory=dict)
    canaries: CanaryFindings | None = None

    def as_json(self) -> dict[str, Any]:
        ends = [self.trials.start, self.trials.stop]
        known = {"trials": ends, "round": self.round, "missed": self.missed}
        known |= {"epsilon": self.epsilon, "rho_beta": self.rho_beta}
        if self.log_odds.size:
            beliefs = expit(self.log_odds)
            both = {"mean": float(beliefs.mean()), "highest": float(beliefs.max())}
            return known | {"log_odds": self.log_odds.tolist(), "belief": both}
        found = None if self.canaries is None else asdict(self.canaries)
        return known | {"noise_at_most": self.noise_at_most, "canaries": found}


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
    groups: list[Steps] = field(default_factory=list)
    rounds: int = 0
    previous: ObservedRound | None = None
    concluded: int = 0
    missed: int = 0


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


NOBODY = -1
"""Partition of an adversary that is not a client."""


class LiveAudit:
    """Reads an auditor's transcript, round by round.

    Args:
        data_root: this machine's folder of the dataset, "" for a bundled one. The folder named in
            the transcript is never opened, and nothing is downloaded.
        challenge: whether to compute beliefs about the challenge, which need D and D'; a training
            has no challenge.
        weights: this machine's copy of the run's `model.weights`, "" for none.
    """

    def __init__(
        self,
        data_root: str = "",
        device_name: str = "auto",
        planted: Sequence[Canaries] = (),
        challenge: bool = True,
        confidence: float = 0.95,
        weights: str = "",
    ) -> None:
        self._data_root, self._device_name = data_root, device_name
        self._planted, self._challenge, self._confidence = planted, challenge, confidence
        self._weights = weights
        self._trainings: dict[int, LiveBatch] = {}
        self._configured: Mapping[str, Any] = {}
        self.config: Config | None = None
        self.beliefs: dict[int, list[Look]] = {}
        self.canaries: CanaryWatch | None = None
        self.noise: NoiseWatch | None = None

    def observe(self, observed: ObservedRound) -> Look | None:
        """Return the results for the round whose sum a message brings; None without a sum."""
        request = LiveRequest.of(observed)
        keys = {key: value for key, value in observed.mechanism.items() if key in KNOWN_KEYS}
        if self.config is None or keys != self._configured:
            self._configure(keys)
        training = self._trainings.get(request.first_trial)
        before = None if training is None else training.previous
        if training is None or (before is not None and observed.round <= before.round):
            # A batch of trials that begins, or begins anew. A message out of order starts a new one
            # too: it is never combined with earlier messages.
            training = self._begun(request, observed, 0 if training is None else training.rounds)
        previous, result = training.previous, None
        if previous is not None and previous.round != observed.round - 1:
            # A missing message had the sum of one round and the model of the next.
            training.missed += self._unseen(training, observed.round - previous.round)
            previous = None
        if previous is not None and "sum" in observed.model:
            result = self._conclude(training, previous, observed)
        training.previous = observed
        return result

    def _configure(self, keys: Mapping[str, Any]) -> None:
        config = from_run_config({**keys, "run.device": self._device_name, "run.threads": 0})
        # The author of the transcript must not choose what is read or downloaded here.
        config = config.reading_data_from(self._data_root, offline=True)
        config = config.starting_from(self._weights)
        if self._challenge and config.run.job != "training":
            check_followable(config)
            # Missing data are reported before the first belief.
            federation.load(config)
        self.config, self._configured = config, keys

    def _begun(self, request: LiveRequest, observed: ObservedRound, attempted: int) -> LiveBatch:
        """Return a batch of trials from its first message, after attempts of so many rounds."""
        parameters = observed.model["parameters"]
        trials = range(request.first_trial, request.first_trial + len(parameters))
        attempt = attempted if adds_up(self.run.privacy.noise_source) else 0
        memory, earlier = Memory.empty(len(trials)), max(request.earlier, attempt)
        training = LiveBatch(trials, memory, request.noise_multiplier, earlier, request.released)
        self._unseen(training, earlier)
        training.missed += self._unseen(training, observed.round - request.begun)
        self._trainings[trials.start] = training
        self.beliefs[trials.start] = []
        config = self.run
        if self._planted:
            norm = config.training.clipping_norm
            self.canaries = self.canaries or CanaryWatch(self._planted, norm)
            self.canaries.begin(trials)
        clients = config.federation.clients * (config.federation.auditor_sees == "messages")
        judged = watchable(config.privacy, config.training, config.trials.count)
        self.noise = NoiseWatch(clients) if judged else None
        return training

    @property
    def rounds(self) -> int:
        return max((training.concluded for training in self._trainings.values()), default=0)

    @property
    def missed(self) -> int:
        return max((training.missed for training in self._trainings.values()), default=0)

    def mechanisms(self) -> tuple[Mechanism, ...]:
        """Return the different noises of the rounds so far, over all batches of trials."""
        batches = [each for each in self._trainings.values() if each.groups]
        return tuple(dict.fromkeys(self._mechanism(each.groups) for each in batches))

    @property
    def trials(self) -> int:
        return sum(len(training.trials) for training in self._trainings.values())

    def everything(self) -> Mechanism | None:
        """Return the noise of all rounds of all trials so far together; None without rounds.

        Rounds that the transcript lacks, such as those before an interruption, count as the server
        states them, with the least tolerated noise.
        """
        batches = list(self._trainings.values())
        if not self.mechanisms():
            return None
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
            fewest = self.run.federation.fewest_participants
            groups.append(self._steps(last.nominal, fewest, last.before - count))
        return self._mechanism(groups)

    def _mechanism(self, groups: Iterable[Steps]) -> Mechanism:
        return Mechanism(tuple(groups), self.run.privacy.neighbouring)

    def _steps(self, nominal: float, sources: int, rounds: int) -> Steps:
        """Return rounds with this many clients, for an observer without noise of its own.

        An auditor that receives single messages faces as little noise as the server.
        """
        federation, training = self.run.federation, self.run.training
        if federation.auditor_sees == "messages":
            sources = 1  # a single message has only its own client's noise
        multiplier = nominal
        if training.local_steps == 1:
            # In a round of local steps, others' noise does not hide the models in between.
            multiplier = aggregate_noise_multiplier(
                nominal, federation.trust, federation.clients, sources
            )
        steps = rounds * training.local_steps
        return Steps(multiplier * training.clipping, steps, training.sampling_rate)

    def _unseen(self, training: LiveBatch, rounds: int) -> int:
        """Count rounds without a result, with the least tolerated noise; return their number."""
        if rounds:
            fewest = self.run.federation.fewest_participants
            training.groups.append(self._steps(training.nominal, fewest, rounds))
            training.rounds += rounds
        return rounds

    @property
    def challenged(self) -> bool:
        return self._challenge and not (self.config and self.config.run.job == "training")

    def canary_findings(self, confidence: float) -> CanaryFindings | None:
        """Return the results of the canaries; None without any.

        Without beliefs, the auditor looks at them after every round. The intervals of all planned
        rounds hold together (Bonferroni). Rounds that are repeated after an interruption are not
        planned.
        """
        watch = self.canaries
        effect = None if watch is None else watch.effect(self.level(confidence))
        if watch is None or effect is None:
            return None
        return CanaryFindings(
            mu=None if effect.reason else effect.mu,
            interval=[*effect.interval.ends],
            reason=effect.reason,
            claimed_mu=watch.prediction(),
            canaries=sum(watch.sides),
            belief=watch.belief(),
        )

    def noise_limits(self, confidence: float) -> dict[str, float]:
        """Return the largest possible noise of sums and messages over the claimed, by name."""
        return {} if self.noise is None else self.noise.limits(confidence)

    def level(self, confidence: float) -> float:
        """Return the confidence of one look at which all planned looks together have this one."""
        if self.challenged:
            return confidence
        batch = len(next(iter(self._trainings.values())).trials)
        looks = self.run.training.rounds * math.ceil(self.run.trials.count / batch)
        return 1 - (1 - confidence) / looks

    @property
    def run(self) -> Config:
        assert self.config is not None
        return self.config

    def _conclude(self, training: LiveBatch, before: ObservedRound, now: ObservedRound) -> Look:
        trials, everybody = training.trials, range(self.run.federation.clients)
        present = everybody if now.participants is None else now.participants
        nominal = LiveRequest.of(before).noise_multiplier
        training.groups.append(self._steps(nominal, len(present), 1))
        training.rounds += 1
        training.concluded = before.round
        released = now.model["sum"]
        std, own_std = (claimed_std(self.run, nominal, each) for each in (len(present), 1))
        if self.canaries is not None:
            self.canaries.observe(trials, before.round, released, std)
        if self.noise is not None:
            sent = {client: reply.arrays["sum"][0] for client, reply in now.replies.items()}
            self.noise.observe(released[0], std, sent, own_std)
        epsilon = PLD.epsilon(self._mechanism(training.groups), self.run.privacy.delta)
        rho_beta = identifiability.rho_beta_of_epsilon(epsilon)
        look = Look(trials, before.round, epsilon, rho_beta, training.missed)
        if not self.challenged:
            limits = self.noise_limits(self._confidence)
            found = self.canary_findings(self._confidence)
            return replace(look, noise_at_most=limits, canaries=found)
        memory = self._remembered(training.memory, before, now, present)
        training.memory = memory
        look = replace(look, log_odds=log_odds(memory.ratios.numpy())[:, -1])
        self.beliefs[trials.start].append(look)
        return look

    def _remembered(
        self, memory: Memory, before: ObservedRound, now: ObservedRound, present: Collection[int]
    ) -> Memory:
        """Return the memory after the sum of the previous round, to which `present` contributed.

        It is a participant's memory, without a message or noise of its own.
        """
        config, request = self.run, LiveRequest.of(before)
        loaded = federation.load(config)
        if loaded.device.type == "cpu":
            device.single_threaded_kernels()
        parameters = torch.tensor(before.model["parameters"]).to(loaded.device)
        trials = range(request.first_trial, request.first_trial + len(parameters))
        records, rate = config.data.records, config.training.sampling_rate
        coins = participation(config.noise_seed, trials, before.round, records, rate)
        target = request.target_client, request.record, request.replacement
        game = RoundGame.of_message(before.round, trials, request.noise_multiplier, *target)
        taking_part = None if coins is None else torch.from_numpy(coins).to(loaded.device)
        memory = participant.expect(
            memory,
            KnownRound(config, loaded, game, parameters, taking_part),
            NOBODY,
            torch.zeros(parameters.shape, dtype=torch.float64, device=loaded.device),
            set(range(config.federation.clients)) - set(present),
            len(present),
        )
        return participant.observe(memory, torch.tensor(now.model["sum"]).to(loaded.device))


def check_followable(config: Config) -> None:
    """Refuse a run whose challenge an auditor cannot follow. Raises InputError."""
    data = config.data
    if not config.participation.complete:
        raise InputError(
            "federation.sampling-rate is below 1. A live auditor does not know which clients "
            "join a round; read the run's own audit instead"
        )
    if config.training.sampling_rate < 1 and config.noise_seed is None:
        raise InputError(
            "training.sampling-rate is below 1 with noise from the operating system. Only the "
            "clients know which records took part, so that the challenge cannot be audited; audit "
            "canaries instead (--canary-seed-file)"
        )
    if not data.root and data.name not in BUNDLED:
        raise InputError(
            f"the run's data, {data.name}, are files, but the audit does not open a folder that a "
            "transcript names; give this machine's folder with --data-root, or audit the "
            "canaries alone (--no-challenge)"
        )
