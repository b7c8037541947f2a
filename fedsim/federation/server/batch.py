"""A batch of trials at the server: who has which role, and the messages of a round."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from adversaries.arrays import Bools, Floats
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.messages import Request, Role
from fedsim.federation.server.checkpoint import State
from fedsim.federation.server.plan import Plan
from fedsim.game import challenge
from fedsim.game.challenge import Challenge
from fedsim.game.mechanisms.fixed_point import FixedPoint

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Batch:
    """A batch of trials: the values that all its rounds share."""

    plan: Plan
    challenge: Challenge
    nodes: Mapping[int, int]
    trials: range
    worlds: Bools

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

    def request(self, role: Role, round: int, spent: tuple[int, int, int]) -> Request:
        """Return the request for a role. Only some roles learn the target."""
        record, replacement, client = None, None, -1
        if role in (Role.TARGET_CLIENT, Role.ADVERSARY, Role.AUDITOR):
            chosen = self.challenge
            record, replacement, client = chosen.record, chosen.replacement, chosen.client
        target = (-1 if record is None else record, -1 if replacement is None else replacement)
        first, count, noise = self.trials.start, len(self.trials), self.plan.noise_multiplier
        return Request(round, first, count, noise, role, *target, client, *spent)


@dataclass(frozen=True)
class Round:
    """A round that has begun.

    Attributes:
        model: float32 [T, P].
        sensitivities: the most that a unit changes a sum, float64 [T].
        told: whether clients scale their noise to these sensitivities.
        integers: the grid of a sum of integers; None for floats.
    """

    number: int
    model: npt.NDArray[np.float32]
    sensitivities: Floats
    told: bool
    integers: FixedPoint | None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.model.shape


@dataclass(frozen=True)
class Outgoing:
    """The messages of a round from a state; the final model's round is one more than the last.

    Recipients share the records of arrays.

    Attributes:
        spent: as in a `Request`.
        sensitivities: [T], which scale the clients' noise; None: they know them.
    """

    batch: Batch
    state: State
    spent: tuple[int, int, int]
    sensitivities: Floats | None = None

    def to_clients(self, kind: str, clients: Iterable[int]) -> list[Message]:
        nodes = self.batch.nodes
        present = sorted(nodes.keys() & set(clients))
        return [Message(self._content(client), nodes[client], kind) for client in present]

    def to_everybody(self, role: Role) -> RecordDict:
        """Return the model and the last release, for the recipients in a role."""
        request = self.batch.request(role, self.state.round + 1, self.spent)
        content = RecordDict({messages.REQUEST: request.to_record(), **self._shared})
        release = self.state.release
        if role is Role.AUDITOR and release is not None and release.messages is not None:
            content[messages.SENT] = release.messages
        return content

    @cached_property
    def _shared(self) -> dict[str, ArrayRecord | ConfigRecord]:
        shared: dict[str, ArrayRecord | ConfigRecord] = {
            messages.MODEL: messages.array_record(parameters=self.state.model)
        }
        if (release := self.state.release) is not None:
            shared[messages.AGGREGATE] = messages.array_record(sum=release.aggregate)
            # Amplification by sampling requires that the participants stay secret.
            if not self.batch.plan.config.participation.hidden:
                clients = list(release.participants)
                shared[messages.PARTICIPANTS] = ConfigRecord({"clients": clients})
        return shared

    def _content(self, partition: int) -> RecordDict:
        role, release = self.batch.role(partition), self.state.release
        content = self.to_everybody(role)
        if role is Role.ADVERSARY and release is not None and release.disclosed:
            content[messages.DISCLOSED] = release.disclosed
        if role is Role.TARGET_CLIENT:
            content[messages.WORLDS] = messages.array_record(bits=self.batch.worlds)
        if self.sensitivities is not None:
            content[messages.SENSITIVITY] = messages.array_record(norms=self.sensitivities)
        return content


@dataclass(frozen=True)
class Received:
    """The valid replies of a round that have a sum, sorted by partition in every runtime."""

    replies: dict[int, Message]

    @property
    def participants(self) -> tuple[int, ...]:
        return tuple(self.replies)

    @property
    def sums(self) -> dict[int, Array]:
        """The message of every client; [T, P]."""
        records = self.records(messages.REPLY)
        return {client: messages.only(record) for client, record in records.items()}

    @cached_property
    def disclosed(self) -> ArrayRecord | None:
        """The noise of the colluders in the round, for the adversary only; None without any."""
        return self._joined(messages.DISCLOSED) or None

    def for_auditors(self, auditor_sees: str) -> ArrayRecord | None:
        """Return every client's message by its number; None where auditors receive the sum only."""
        return None if auditor_sees == "sums" else self._joined(messages.REPLY)

    def records(self, name: str) -> dict[int, ArrayRecord]:
        contents = {
            client: messages.array_records(reply.content) for client, reply in self.replies.items()
        }
        return {client: each[name] for client, each in contents.items() if name in each}

    def _joined(self, name: str) -> ArrayRecord:
        records = self.records(name).items()
        return messages.array_record(
            **{str(client): messages.only(each) for client, each in records}
        )
