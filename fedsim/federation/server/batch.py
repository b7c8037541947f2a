"""What the server knows of a batch of trials, of a round that has begun, and of its replies."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, Message

from fedsim.config import Config
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.messages import Role
from fedsim.game import challenge
from fedsim.game.challenge import Challenge
from fedsim.game.mechanisms.fixed_point import FixedPoint
from fedsim.game.round_game import RoundGame
from fedsim.privacy.mechanism import aggregate_noise_multiplier
from fedsim.privacy.trust.model import Vantage

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Batch:
    """A batch of trials: what all its rounds have in common.

    Attributes:
        config: the experiment.
        challenge: the target, and who plays which part.
        noise_multiplier: nominal.
        nodes: the Flower node of each partition.
        trials: their numbers, T of them.
        worlds: bool [T], which trials train on D.
    """

    config: Config
    challenge: Challenge
    noise_multiplier: float
    nodes: Mapping[int, int]
    trials: range
    worlds: npt.NDArray[np.bool_]

    @cached_property
    def colluders(self) -> frozenset[int]:
        """The clients that disclose their noise to the adversary."""
        return frozenset(challenge.colluders(self.config.federation, self.challenge))

    @property
    def by_candidate(self) -> bool:
        """Whether clients send a sum for every candidate, of which the server alone knows which."""
        return self.config.privacy.noise.mechanism.by_candidate

    @property
    def concluding(self) -> list[int]:
        """The clients that conclude something from the final model; of a training, nobody."""
        return [] if self.challenge is challenge.NOBODY else [self.challenge.adversary]

    def asked(self, round: int) -> list[int]:
        """Return the clients that are asked in a round.

        Those that take part in it in any trial; where coins are secret the target, of whose coins
        no other knows, in all; and so the adversary, unless it sees its own rounds alone.
        """
        rule, target = self.config.participation, self.challenge
        if rule.complete:
            return list(self.nodes)
        streams = self.config.trials.streams(self.trials)
        every = self.config.federation.adversary_rounds == "every"
        return rule.asked(streams, round, target.client, target.adversary, every)

    def sends(self, partition: int, round: int) -> bool:
        """Return whether a client that is asked sends a sum, or is the adversary and looks on."""
        return partition in self.config.participation.participants(round)

    def role(self, partition: int) -> Role:
        """Return the part that a client plays."""
        if partition == self.challenge.client:
            return Role.TARGET_CLIENT
        if partition == self.challenge.adversary:
            return Role.ADVERSARY
        return Role.COLLUDER if partition in self.colluders else Role.CLIENT

    def game(self, round: int) -> RoundGame:
        """Return what a curious server asks itself in a round."""
        target = self.challenge
        return RoundGame(
            round,
            self.trials,
            self.noise_multiplier,
            target.client,
            target.record,
            target.replacement,
        )

    def unknown_noise(self, vantage: Vantage, participants: tuple[int, ...]) -> frozenset[int]:
        """Return whose noise hides the target from a vantage: sources, as of `TrustModel`."""
        return self.config.federation.trust.model.unknown_noise(
            vantage, participants, self.challenge.client, self.challenge.adversary, self.colluders
        )

    def towards(self, sources: frozenset[int]) -> float:
        """Return the noise multiplier towards somebody who does not know the noise of these."""
        trust, clients = self.config.federation.trust, self.config.participation.expected_clients
        return aggregate_noise_multiplier(self.noise_multiplier, trust, clients, len(sources))


@dataclass(frozen=True)
class Round:
    """A round that has begun.

    Attributes:
        number: from 1.
        model: [T, P] float32, as it was sent.
        sensitivities: [T] float64, what the noise is a multiple of.
        local: whether these were measured on the data and are told to clients that draw noise.
        grid: of the clients' messages; None where they are floating-point numbers.
        shape: of one client's sum, (T, P), or (T, m, P) with m candidates.
    """

    number: int
    model: Array
    sensitivities: Floats
    local: bool
    grid: FixedPoint | None
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Received:
    """The good replies of a round with sums in them.

    Attributes:
        replies: by partition, sorted, so that every runtime sums alike.
    """

    replies: dict[int, Message]

    @property
    def participants(self) -> tuple[int, ...]:
        """The clients that took part."""
        return tuple(self.replies)

    @cached_property
    def disclosed(self) -> ArrayRecord | None:
        """The noise of the colluders that took part, for the adversary alone; None for none."""
        arrays = {
            str(partition): messages.only(record)
            for partition, record in self.records(messages.DISCLOSED).items()
        }
        return messages.array_record(**arrays) if arrays else None

    def for_auditors(self, auditor_sees: str) -> ArrayRecord | None:
        """Return every client's message by its number; None where auditors are sent the sum."""
        if auditor_sees == "sums":
            return None
        sent = self.records(messages.REPLY)
        return messages.array_record(
            **{str(partition): messages.only(record) for partition, record in sent.items()}
        )

    def records(self, name: str) -> dict[int, ArrayRecord]:
        """Return the array records of this name of all clients that sent one."""
        return {
            partition: messages.array_records(reply.content)[name]
            for partition, reply in self.replies.items()
            if name in messages.array_records(reply.content)
        }


@dataclass(frozen=True)
class Release:
    """What a round releases: what clients are sent next.

    Attributes:
        aggregate: [T, P] float32.
        participants: whose messages are in it.
        disclosed: the colluders' noise, which the adversary alone is sent.
        messages: [T, P] of each participant, which auditors are sent; None where they are not.
    """

    aggregate: npt.NDArray[np.float32]
    participants: tuple[int, ...]
    disclosed: ArrayRecord | None
    messages: ArrayRecord | None = None
