"""What a client tells beside its sum: an auditor its measurements, a colluder its noise."""

import torch
from flwr.app import ArrayRecord

from fedsim.config import Config
from fedsim.config.campaign import AuditConfig
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.messages import Request, Role
from fedsim.game.client import challenge_contributions, gradient_distances
from fedsim.game.federation import Federation
from fedsim.game.mechanisms import vantages
from fedsim.game.observers import at_server
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.noise.mechanism import Bools


def disclosed(
    config: Config,
    known: Federation,
    request: Request,
    partition: int,
    parameters: torch.Tensor,
    taking_part: torch.Tensor | None,
    noises: list[torch.Tensor],
    masks: Bools | None,
) -> dict[str, ArrayRecord]:
    """Return the records beside a client's sum: what the auditor is told, or a colluder's noise.

    request: what is asked, with the client's role.
    parameters: of the model, [T, P].
    taking_part: bool [T, n], of the first step; None where every record takes part.
    noises: of each step, [T, P]; empty where none is disclosed.
    masks: which of the client's records each candidate has; None without candidates.
    """
    if not at_server.seat(config.audit.mode).reads_noise:
        if request.role != Role.COLLUDER or not noises:
            return {}
        (noise_drawn,) = noises
        return {messages.DISCLOSED: messages.array_record(noise=noise_drawn.cpu().numpy())}
    measured = _measurement(config, known, request, parameters, taking_part, noises)
    if masks is not None and request.role == Role.TARGET_CLIENT:
        (column,) = (known.owned_by(partition) == request.record).nonzero()[0]
        measured["membership"] = torch.from_numpy(masks[:, column])
    if not measured:
        return {}
    arrays = {name: tensor.cpu().numpy() for name, tensor in measured.items()}
    return {messages.MEASUREMENT: messages.array_record(**arrays)}


def _measurement(
    config: Config,
    known: Federation,
    request: Request,
    parameters: torch.Tensor,
    taking_part: torch.Tensor | None,
    noises: list[torch.Tensor],
) -> dict[str, torch.Tensor]:
    """Return what a client tells the auditor of an oracle audit."""
    measured = {}
    roles = (request.role == role for role in (Role.TARGET_CLIENT, Role.ADVERSARY, Role.COLLUDER))
    if noises and vantages.tells_noise(config.federation, config.audit.vantages, *roles):
        (measured["noise"],) = noises
    if request.role != Role.TARGET_CLIENT:
        return measured
    present, absent = challenge_contributions(config.game, known, parameters, request.game)
    measured["present"] = present
    if config.privacy.neighbouring is Neighbouring.REPLACE:
        measured["absent"] = absent
    if taking_part is not None and config.participation.secret:
        measured["participation"] = taking_part[:, request.game.unit]
    return measured


def distances(
    noise_seed: int | None,
    audit: AuditConfig,
    neighbouring: Neighbouring,
    known: Federation,
    request: Request,
    partition: int,
    parameters: torch.Tensor,
) -> dict[str, ArrayRecord]:
    """Return the record that the Bayesian accountant asks of a client, if it asks anything.

    neighbouring: whether that record or client is missing, or replaced by another.
    parameters: of the model, [T, P].
    """
    evaluated = audit.evaluated(request.trial_numbers)
    if not audit.bayesian_pairs or not evaluated:
        return {}
    trials = request.trial_numbers[:evaluated]
    found = gradient_distances(
        noise_seed,
        audit.bayesian_pairs,
        neighbouring,
        known,
        partition,
        parameters[:evaluated],
        trials,
        request.round,
    )
    if found is None:
        return {}
    return {messages.DISTANCES: messages.array_record(distances=found.cpu().numpy())}
