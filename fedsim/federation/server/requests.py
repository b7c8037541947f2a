"""The server's messages: the model and the last release for all, and the records of each role."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from adversaries.arrays import Floats
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.messages import Request, Role
from fedsim.federation.server.batch import Batch
from fedsim.federation.server.checkpoint import RoundRelease


@dataclass(frozen=True)
class Sending:
    """The content of a round's messages; the final model's round is one more than the last."""

    batch: Batch
    round: int
    arrays: ArrayRecord
    spent: tuple[int, int, int]
    release: RoundRelease | None = None
    sensitivities: Floats | None = None
    _requests: dict[Role, ConfigRecord] = field(default_factory=dict, init=False)

    def to_clients(self, kind: str, clients: Iterable[int]) -> list[Message]:
        nodes = self.batch.nodes
        present = sorted(nodes.keys() & set(clients))
        return [Message(self._content(client), nodes[client], kind) for client in present]

    def to_everybody(self, role: Role) -> RecordDict:
        """Return the model and the previous release, for the recipients in a role."""
        if role not in self._requests:
            self._requests[role] = self.request(role).to_record()
        content = RecordDict({messages.REQUEST: self._requests[role], messages.MODEL: self.arrays})
        if self.release is not None:
            aggregate, present = self._released
            content[messages.AGGREGATE] = aggregate
            # Amplification by sampling requires that the participants stay secret.
            if self.batch.plan.config.participation.public:
                content[messages.PARTICIPANTS] = present
            if role is Role.AUDITOR and self.release.messages is not None:
                content[messages.SENT] = self.release.messages
        return content

    @cached_property
    def _released(self) -> tuple[ArrayRecord, ConfigRecord]:
        """The last sum and its participants. All messages share these two records."""
        assert self.release is not None
        present = ConfigRecord({"clients": list(self.release.participants)})
        return messages.array_record(sum=self.release.aggregate), present

    def request(self, role: Role) -> Request:
        """Return the request for a role. Only some roles learn the target."""
        batch, target_fields = self.batch, (-1, -1, -1)
        if role in (Role.TARGET_CLIENT, Role.ADVERSARY, Role.AUDITOR):
            target = batch.challenge
            target_fields = (_number(target.record), _number(target.replacement), target.client)
        first, count = batch.trials.start, len(batch.trials)
        fields = (*target_fields, *self.spent, batch.ended)
        return Request(self.round, first, count, batch.plan.noise_multiplier, role, *fields)

    def _content(self, partition: int) -> RecordDict:
        batch, role = self.batch, self.batch.role(partition)
        content = self.to_everybody(role)
        if role is Role.ADVERSARY and self.release is not None and self.release.disclosed:
            content[messages.DISCLOSED] = self.release.disclosed
        if role is Role.TARGET_CLIENT:
            content[messages.WORLDS] = messages.array_record(bits=batch.worlds)
        if self.sensitivities is not None:
            content[messages.SENSITIVITY] = messages.array_record(norms=self.sensitivities)
        return content


def _number(position: int | None) -> int:
    return -1 if position is None else position
