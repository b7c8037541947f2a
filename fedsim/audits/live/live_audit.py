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
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from adversaries.attacks.posterior import log_odds
from adversaries.errors import InputError
from fedsim.audits.live.live_rounds import (
    CanaryFindings,
    CanaryWatch,
    LiveAccounting,
    LiveBatch,
    LiveRequest,
    Look,
)
from fedsim.common import device
from fedsim.configuration import KNOWN_KEYS, Config, from_run_config
from fedsim.federation.transcripts.records import ObservedRound
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
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.participation.sampling import participation

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
        self.accounting: LiveAccounting
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
            missed = observed.round - previous.round
            self._miss(training, missed)
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
        self.accounting = LiveAccounting(config.federation, config.training, config.privacy)

    def _begun(self, request: LiveRequest, observed: ObservedRound, attempted: int) -> LiveBatch:
        """Return a batch of trials from its first message, after attempts of so many rounds."""
        parameters = observed.model["parameters"]
        trials = range(request.first_trial, request.first_trial + len(parameters))
        attempt = attempted if adds_up(self.run.privacy.noise_source) else 0
        training = LiveBatch(
            trials,
            Memory.empty(len(trials)),
            request.noise_multiplier,
            max(request.earlier, attempt),
            request.released,
            [],
        )
        if training.earlier:
            steps = self.accounting.unseen(training.nominal, training.earlier)
            training.add(steps, training.earlier)
        self._miss(training, observed.round - request.begun)
        self._trainings[trials.start] = training
        self.beliefs[trials.start] = []
        self._begin_watching(trials)
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
        return tuple(dict.fromkeys(self.accounting.mechanism(each.groups) for each in batches))

    @property
    def trials(self) -> int:
        return sum(len(training.trials) for training in self._trainings.values())

    def everything(self) -> Mechanism | None:
        """Return the noise of all rounds of all trials so far together; None without rounds."""
        batches = list(self._trainings.values())
        return self.accounting.everything(batches) if self.mechanisms() else None

    @property
    def challenged(self) -> bool:
        return self._challenge and not (self.config and self.config.run.job == "training")

    def canary_findings(self, confidence: float) -> CanaryFindings | None:
        """Return the results of the canaries; None without any.

        Without beliefs, the auditor looks at them after every round. The intervals of all planned
        rounds hold together (Bonferroni). Rounds that are repeated after an interruption are not
        planned.
        """
        watch, config = self.canaries, self.config
        if watch is None or config is None:
            return None
        level = self.level(confidence)
        effect = watch.effect(level)
        if effect is None:
            return None
        return CanaryFindings(
            mu=None if effect.reason else effect.mu,
            interval=[*effect.interval.ends],
            reason=effect.reason,
            claimed_mu=watch.prediction(),
            canaries=sum(watch.sides),
            belief=watch.belief(),
        )

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

    def _miss(self, training: LiveBatch, rounds: int) -> None:
        """Count missed rounds, with the least tolerated noise."""
        if rounds:
            training.missed += rounds
            training.add(self.accounting.unseen(training.nominal, rounds), rounds)

    def _conclude(self, training: LiveBatch, before: ObservedRound, now: ObservedRound) -> Look:
        trials, everybody = training.trials, range(self.run.federation.clients)
        present = everybody if now.participants is None else now.participants
        nominal = LiveRequest.of(before).noise_multiplier
        training.add(self.accounting.steps(nominal, len(present), 1), 1)
        training.concluded = before.round
        released = now.model["sum"]
        std, own_std = (claimed_std(self.run, nominal, each) for each in (len(present), 1))
        if self.canaries is not None:
            self.canaries.observe(trials, before.round, released, std)
        if self.noise is not None:
            sent = {client: reply.arrays["sum"][0] for client, reply in now.replies.items()}
            self.noise.observe(released[0], std, sent, own_std)
        epsilon = self.accounting.epsilon(training.groups)
        rho_beta = identifiability.rho_beta_of_epsilon(epsilon)
        look = Look(trials, before.round, epsilon, rho_beta, training.missed)
        if not self.challenged:
            limits = {} if self.noise is None else self.noise.limits(self._confidence)
            found = self.canary_findings(self._confidence)
            return replace(look, noise_at_most=limits, canaries=found)
        memory = self._remembered(training.memory, before, now, present)
        training.memory = memory
        look = replace(
            look,
            log_odds=log_odds(memory.ratios.numpy())[:, -1],
            sensitivities=memory.sensitivities[:, -1].numpy(),
            noise_stds=memory.noise_stds[:, -1].numpy(),
        )
        self.beliefs[trials.start].append(look)
        return look

    def _begin_watching(self, trials: range) -> None:
        config = self.run
        if self._planted:
            norm = config.training.clipping_norm
            self.canaries = self.canaries or CanaryWatch(self._planted, norm)
            self.canaries.begin(trials)
        messages = config.federation.auditor_sees == "messages"
        clients = config.federation.clients if messages else 0
        self.noise = (
            NoiseWatch(clients)
            if watchable(config.privacy, config.training, config.trials.count)
            else None
        )

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
        coins = participation(
            config.noise_seed,
            trials,
            before.round,
            config.data.records,
            config.training.sampling_rate,
        )
        game = RoundGame.of_message(
            before.round,
            trials,
            request.noise_multiplier,
            request.target_client,
            request.record,
            request.replacement,
        )
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
