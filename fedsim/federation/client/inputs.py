"""What a client reads out of a request: models and sums."""

import torch
from flwr.app import Message

from fedsim.federation.protocol import messages
from fedsim.game.federation import Federation


def model(message: Message, known: Federation) -> torch.Tensor:
    """Return the models float32 [T, P] that a message brings, on the federation's device.

    Args:
        message: as received.
        known: the federation.
    """
    return array(message, messages.MODEL, known)


def array(message: Message, name: str, known: Federation) -> torch.Tensor:
    """Return the array of a record that holds exactly one, on the federation's device.

    Args:
        message: as received.
        name: of the record.
        known: the federation.
    """
    return torch.tensor(messages.only(messages.array_records(message.content)[name])).to(
        known.device
    )
