"""What a client of an audit sends beside its sum: measurements without noise, and its noise."""

import torch
from flwr.app import ArrayRecord

from fedsim.common import device
from fedsim.federation.client import admission
from fedsim.federation.client.admission import Received
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.messages import Role
from fedsim.game.known_round import KnownRound
from fedsim.game.mechanisms import vantages
from fedsim.game.pair import challenge_contributions
from fedsim.privacy.mechanism import Neighbouring


def disclosed(
    received: Received,
    parameters: torch.Tensor,
    taking_part: torch.Tensor | None,
    noises: list[torch.Tensor],
) -> dict[str, ArrayRecord]:
    """Return the records beside a sum: an auditor's measurement, or a colluder's noises, [T, P]."""
    if not admission.reads_noise(received.config.audit.mode):
        if received.request.role != Role.COLLUDER or not noises:
            return {}
        (noise_drawn,) = noises
        return {messages.DISCLOSED: messages.array_record(noise=noise_drawn.cpu().numpy())}
    measured = _measurement(received, parameters, taking_part, noises)
    if not measured:
        return {}
    return {messages.MEASUREMENT: messages.array_record(**device.to_host(measured))}


def _measurement(
    received: Received,
    parameters: torch.Tensor,
    taking_part: torch.Tensor | None,
    noises: list[torch.Tensor],
) -> dict[str, torch.Tensor]:
    config, request = received.config, received.request
    measured = {}
    roles = (request.role == role for role in (Role.TARGET_CLIENT, Role.ADVERSARY, Role.COLLUDER))
    if noises and vantages.tells_noise(config.federation, config.audit.vantages, *roles):
        (measured["noise"],) = noises
    if request.role != Role.TARGET_CLIENT:
        return measured
    known = KnownRound(config, received.loaded, request.game, parameters)
    present, absent = challenge_contributions(known)
    measured["present"] = present
    if config.privacy.neighbouring is Neighbouring.REPLACE:
        measured["absent"] = absent
    if taking_part is not None and config.participation.secret:
        measured["participation"] = taking_part[:, request.game.unit]
    return measured
