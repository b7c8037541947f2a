"""A request at a client's node: the message with its models and sums."""

from dataclasses import dataclass

import torch
from flwr.app import Context, Message

from fedsim.config import Config
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.messages import Request
from fedsim.game.federation import Federation


@dataclass(frozen=True)
class Received:
    """A message to a client's node, with the client's data.

    Attributes:
        whole: the same data with the records that the client holds back from every training.
    """

    message: Message
    context: Context
    config: Config
    loaded: Federation
    whole: Federation
    request: Request

    @property
    def partition(self) -> int:
        return messages.partition(self.context)

    @property
    def model(self) -> torch.Tensor:
        """The models of the message, float32 [T, P], on the federation's device."""
        return self.array(messages.MODEL)

    def array(self, name: str) -> torch.Tensor:
        """Return the only array of a record, on the federation's device."""
        record = messages.array_records(self.message.content)[name]
        return torch.tensor(messages.only(record)).to(self.loaded.device, non_blocking=True)
