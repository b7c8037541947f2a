"""What a client reads out of a request: models and sums."""

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
        known: the federation's data as the node knows them.
        request: what is asked.
    """

    message: Message
    context: Context
    config: Config
    known: Federation
    request: Request


def model(message: Message, known: Federation) -> torch.Tensor:
    """Return the models float32 [T, P] that a message brings, on the federation's device."""
    return array(message, messages.MODEL, known)


def array(message: Message, name: str, known: Federation) -> torch.Tensor:
    """Return the array of a record that holds exactly one, on the federation's device."""
    return torch.tensor(messages.only(messages.array_records(message.content)[name])).to(
        known.device
    )
