"""Flower's Grid in one process, without a SuperLink.

It is the fast path for one machine and one device. Clients run one after another, since each one
spreads its trials over all threads.
"""

import copy
from collections.abc import Iterable, Mapping

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedsim.configuration import Scalar
from fedsim.federation.protocol.flower_private import (
    Run,
    assign_message_id,
    become_task,
    empty_run,
    record_of,
)
from fedsim.federation.protocol.messages import HeldArray
from fedsim.game import local_training

RUN_ID = 1
SERVER_NODE = 1
FIRST_NODE = 1000


class InProcessGrid(Grid):
    """A Grid that calls a ClientApp directly.

    Attributes:
        contexts: the Flower context of each node, by its id.
    """

    def __init__(self, client_app: ClientApp, nodes: int, run_config: Mapping[str, Scalar]) -> None:
        self._client_app = client_app
        self._run = empty_run(RUN_ID)
        self._replies: dict[str, Message] = {}
        self.contexts = {
            FIRST_NODE + partition: Context(
                run_id=RUN_ID,
                node_id=FIRST_NODE + partition,
                node_config={"partition-id": partition, "num-partitions": nodes},
                state=RecordDict(),
                run_config=dict(run_config),
            )
            for partition in range(nodes)
        }
        become_task(RUN_ID, SERVER_NODE)

    def set_run(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Return the ClientApp's reply to each message; an exception becomes an error reply."""
        due = list(messages)
        with local_training.played(message.metadata.dst_node_id - FIRST_NODE for message in due):
            return [self.execute(message) for message in due]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Compute the replies to messages and keep them; return the messages' ids."""
        ids = []
        for message in messages:
            reply = self.execute(message)
            ids.append(message.metadata.message_id)
            self._replies[message.metadata.message_id] = reply
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(id) for id in message_ids if id in self._replies]

    def execute(self, message: Message) -> Message:
        """Return the ClientApp's reply to one message. Every message passes through this method."""
        assign_message_id(message)
        message.content = _copied(message.content)
        try:
            return self._client_app(message, self.contexts[message.metadata.dst_node_id])
        except Exception as error:  # Flower's own runtimes do the same
            reason = f"{type(error).__name__}: {error}"
            return Message(Error(code=2, reason=reason), reply_to=message)


def _copied(content: RecordDict) -> RecordDict:
    """Return a copy of a message's content.

    Strategies may put one record into many messages, and a client that changed it would change the
    other messages. Arrays are read-only to the receiver and no sender writes
    to them afterwards, so copies share them.
    """
    own = {}
    for name, record in content.items():
        same = {
            key: value if isinstance(value, HeldArray) else copy.copy(value)
            for key, value in record.items()
        }
        own[name] = record_of(type(record), same)
    copied: RecordDict = record_of(RecordDict, own)
    return copied
