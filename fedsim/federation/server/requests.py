"""What the server sends: to everybody the model and the last release, to each its part."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fedsim.federation.protocol import messages
from fedsim.federation.protocol.messages import Request, Role
from fedsim.federation.server.batch import Batch, Floats, Release


@dataclass(frozen=True)
class Sending:
    """What is sent in a round.

    Attributes:
        batch: the batch of trials.
        round: its number, from 1; one more than the rounds with the final model.
        arrays: the model.
        spent: how many rounds earlier attempts, and all trainings before this one, have released,
            and the round that this one begins with.
        release: of the round before, None in the first.
        sensitivities: [T], told to clients that scale their noise to them; None where public.
    """

    batch: Batch
    round: int
    arrays: ArrayRecord
    spent: tuple[int, int, int]
    release: Release | None = None
    sensitivities: Floats | None = None

    def to_clients(self, kind: str, clients: Iterable[int]) -> list[Message]:
        """Return a message to each of some clients."""
        nodes = self.batch.nodes
        return [Message(self._content(client), nodes[client], kind) for client in sorted(clients)]

    def to_everybody(self, role: Role) -> RecordDict:
        """Return the model and what the round before released, for somebody in a role."""
        content = RecordDict(
            {messages.REQUEST: self.request(role).to_record(), messages.MODEL: self.arrays}
        )
        if self.release is not None:
            aggregate, present = self._released
            config = self.batch.config
            # Who sees its own rounds alone is told of no other's sum.
            if config.federation.adversary_rounds == "every":
                content[messages.AGGREGATE] = aggregate
            # Nobody is told who joined where the amplification of sampling counts on it.
            if config.participation.public:
                content[messages.PARTICIPANTS] = present
            if role is Role.AUDITOR and self.release.messages is not None:
                content[messages.SENT] = self.release.messages
        return content

    @cached_property
    def _released(self) -> tuple[ArrayRecord, ConfigRecord]:
        """The last sum and who is in it: one record of each, in the messages to all."""
        assert self.release is not None
        present = ConfigRecord({"clients": list(self.release.participants)})
        return messages.array_record(sum=self.release.aggregate), present

    def request(self, role: Role) -> Request:
        """Return what somebody in a role is asked; who is told of the target is its own."""
        batch, target_fields = self.batch, (-1, -1, -1)
        if role in (Role.TARGET_CLIENT, Role.ADVERSARY, Role.AUDITOR):
            target = batch.challenge
            target_fields = (_number(target.record), _number(target.replacement), target.client)
        first, count = batch.trials.start, len(batch.trials)
        return Request(
            self.round, first, count, batch.noise_multiplier, role, *target_fields, *self.spent
        )

    def _content(self, partition: int) -> RecordDict:
        batch, role = self.batch, self.batch.role(partition)
        content = self.to_everybody(role)
        if role is Role.ADVERSARY and self.release is not None and self.release.disclosed:
            content[messages.DISCLOSED] = self.release.disclosed
        # Where it sends a sum for every candidate, the server alone knows which of them counts.
        if role is Role.TARGET_CLIENT and not batch.by_candidate:
            content[messages.WORLDS] = messages.array_record(bits=batch.worlds)
        if self.sensitivities is not None:
            content[messages.SENSITIVITY] = messages.array_record(norms=self.sensitivities)
        return content


def _number(position: int | None) -> int:
    return -1 if position is None else position
