"""A federation in this process that keeps a copy of what its nodes receive."""

import copy

from flwr.app import RecordDict

from fedsim import client_app
from fedsim.configuration import to_run_config
from fedsim.federation.protocol import messages
from fedsim.federation.runtimes.inprocess import FIRST_NODE, InProcessGrid

TURNS = ("train", "evaluate")
"""The messages of rounds, and of the final model."""


class RecordingGrid(InProcessGrid):
    """Keeps a copy of every message, and who sent a sum.

    Attributes:
        recorded: kind and content of the messages to each client, in order.
        asked: the clients that got a message, by round.
        sent: those of them that answered with a sum.
    """

    def __init__(self, config):
        super().__init__(client_app.app, config.federation.clients, to_run_config(config))
        self.recorded: dict[int, list[tuple[str, RecordDict]]] = {}
        self.asked: dict[int, set[int]] = {}
        self.sent: dict[int, set[int]] = {}

    def execute(self, message):
        kind, partition = message.metadata.message_type, message.metadata.dst_node_id - FIRST_NODE
        content = copy.deepcopy(message.content)
        self.recorded.setdefault(partition, []).append((kind, content))
        reply = super().execute(message)
        if kind in TURNS:
            round = messages.Request.from_content(content).round
            self.asked.setdefault(round, set()).add(partition)
            if not reply.has_error() and messages.REPLY in reply.content:
                self.sent.setdefault(round, set()).add(partition)
        return reply

    def of_rounds(self, partition):
        """Return the records of arrays in a client's messages of rounds and the final model."""
        received = self.recorded.get(partition, ())
        return [messages.array_records(content) for kind, content in received if kind in TURNS]
