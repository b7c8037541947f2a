"""The server's view of a batch of trials, of a round, and of its replies."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy.typing as npt
from flwr.app import ArrayRecord, Message

from adversaries.arrays import Bools, Floats
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.messages import Role
from fedsim.federation.server.plan import Plan
from fedsim.game import challenge
from fedsim.game.challenge import Challenge
from fedsim.game.mechanisms.fixed_point import FixedPoint
from fedsim.game.round_game import RoundGame
from fedsim.privacy.mechanism import aggregate_noise_multiplier
from fedsim.privacy.trust.model import Vantage

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Batch:
    """A batch of trials: the values that all its rounds share; ended: as in a `Request`."""

    plan: Plan
    challenge: Challenge
    nodes: Mapping[int, int]
    trials: range
    worlds: Bools
    ended: str = ""

    @cached_property
    def colluders(self) -> frozenset[int]:
        """The clients that disclose their noise to the adversary."""
        return frozenset(challenge.colluders(self.plan.config.federation, self.challenge))

    @property
    def concluding(self) -> list[int]:
        """The clients that receive the final model; empty in a training, which has no adversary."""
        return [] if self.challenge is challenge.NOBODY else [self.challenge.adversary]

    def asked(self, round: int) -> list[int]:
        """Return the clients that join a round in any trial, and those whose coins are secret."""
        rule, target = self.plan.config.participation, self.challenge
        if rule.complete:
            return list(rule.participants(round))
        return rule.asked(self.trials, round, target.client, target.adversary)

    def sends(self, partition: int, round: int) -> bool:
        """Return whether a client sends a sum, rather than sees the round as the adversary."""
        return partition in self.plan.config.participation.participants(round)

    def role(self, partition: int) -> Role:
        if partition == self.challenge.client:
            return Role.TARGET_CLIENT
        if partition == self.challenge.adversary:
            return Role.ADVERSARY
        return Role.COLLUDER if partition in self.colluders else Role.CLIENT

    def game(self, round: int) -> RoundGame:
        """Return the round's game, as a curious server knows it."""
        target = self.challenge
        return RoundGame(
            round,
            self.trials,
            self.plan.noise_multiplier,
            target.client,
            target.record,
            target.replacement,
        )

    def unknown_noise(self, vantage: Vantage, participants: tuple[int, ...]) -> frozenset[int]:
        """Return the sources of noise that hide the target from a vantage (see `TrustModel`)."""
        return self.plan.config.federation.trust.model.unknown_noise(
            vantage, participants, self.challenge.client, self.challenge.adversary, self.colluders
        )

    def towards(self, sources: frozenset[int]) -> float:
        """Return the noise multiplier towards a party that does not know the sources' noise."""
        trust, clients = (
            self.plan.config.federation.trust,
            self.plan.config.participation.expected_clients,
        )
        return aggregate_noise_multiplier(self.plan.noise_multiplier, trust, clients, len(sources))


@dataclass(frozen=True)
class BegunRound:
    """A round that has begun; `shape` is (T, P)."""

    number: int
    model: Array
    sensitivities: Floats
    local: bool
    grid: FixedPoint | None
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ReceivedReplies:
    """The valid replies of a round that have a sum, sorted by partition in every runtime."""

    replies: dict[int, Message]

    @property
    def participants(self) -> tuple[int, ...]:
        return tuple(self.replies)

    @cached_property
    def disclosed(self) -> ArrayRecord | None:
        """The noise of the colluders in the round, for the adversary only; None without any."""
        arrays = {
            str(partition): messages.only(record)
            for partition, record in self.records(messages.DISCLOSED).items()
        }
        return messages.array_record(**arrays) if arrays else None

    def for_auditors(self, auditor_sees: str) -> ArrayRecord | None:
        """Return every client's message by its number; None where auditors receive the sum only."""
        if auditor_sees == "sums":
            return None
        sent = self.records(messages.REPLY)
        return messages.array_record(
            **{str(partition): messages.only(record) for partition, record in sent.items()}
        )

    def records(self, name: str) -> dict[int, ArrayRecord]:
        return {
            partition: messages.array_records(reply.content)[name]
            for partition, reply in self.replies.items()
            if name in messages.array_records(reply.content)
        }
