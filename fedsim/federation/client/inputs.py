"""A request as a client's node takes it in: the message, and the models and sums that it brings."""

from dataclasses import dataclass

import torch
from flwr.app import Context, Message

from fedsim.config import Config
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.messages import Request
from fedsim.game.federation import Federation


@dataclass(frozen=True)
class Received:
    """A message as a client's node takes it in.

    Attributes:
        message: as received.
        context: of the node, whose state is the memory.
        config: the experiment.
        known: the federation's data as the node trains on them.
        whole: the same with the records that the client holds back from every training.
        request: what is asked.
    """

    message: Message
    context: Context
    config: Config
    known: Federation
    whole: Federation
    request: Request

    @property
    def partition(self) -> int:
        """The client's number."""
        return messages.partition(self.context)

    @property
    def model(self) -> torch.Tensor:
        """The models float32 [T, P] that the message brings, on the federation's device."""
        return self.array(messages.MODEL)

    def array(self, name: str) -> torch.Tensor:
        """Return the array of a record that holds exactly one, on the federation's device."""
        record = messages.array_records(self.message.content)[name]
        return torch.tensor(messages.only(record)).to(self.known.device, non_blocking=True)
