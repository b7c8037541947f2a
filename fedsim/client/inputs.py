"""What a client reads out of a request: models and sums, and which records take part."""

import torch
from flwr.app import Message

from fedsim.config import Config
from fedsim.game.federation import Federation
from fedsim.protocol import messages
from fedsim.protocol.messages import Request
from fedsim.training.sampling import participation


def taking_part(config: Config, known: Federation, request: Request) -> torch.Tensor | None:
    """Return which records of D take part in a round.

    Args:
        config: the experiment.
        known: the federation, whose device the answer is on.
        request: names round and trials.

    Returns:
        bool [T, n]; None if all do.
    """
    coins = participation(
        config.noise_seed,
        config.trials.streams(request.trial_numbers),
        request.round,
        len(known.client_of),
        config.training.sampling_rate,
    )
    return None if coins is None else torch.from_numpy(coins).to(known.device)


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
    return torch.tensor(messages.only(message.content.array_records[name])).to(known.device)
