"""Client-level privacy: neighbouring federations differ in all data of one client.

A client trains a copy of the model without noise, and sends the difference, clipped as a whole
(McMahan et al., "Learning differentially private recurrent language models", 2018, Algorithm 1). An
adversary that knows it and its batches has an exact posterior for any training.
"""

from collections.abc import Collection

import torch
from torch import Tensor

from fedsim.game import cohort
from fedsim.game.federation import Federation
from fedsim.game.known_round import KnownRound
from fedsim.game.local_training import alike, clip, planned, trained, updates
from fedsim.privacy.mechanism import Neighbouring


def contribution(knowledge: KnownRound, client: int, worlds: Tensor | None = None) -> Tensor:
    """Return a client's part of the sum of a round: 0 where it takes no part.

    worlds: bool [T], for the target client: where False, all its data are missing or replaced.
    Returns: float64 [T, P], each row of norm at most C.
    Raises FloatingPointError if it diverges.
    """
    joins = None if knowledge.participation is None else knowledge.participation[:, client, None]
    if joins is not None and not bool(joins.any()):
        return torch.zeros_like(knowledge.parameters, dtype=torch.float64)
    if worlds is None:
        sent = cohort.sent(knowledge, client)
    else:
        present, absent = challenge_contributions(knowledge)
        sent = torch.where(worlds[:, None], present, absent)
    return sent if joins is None else sent * joins


def challenge_contributions(knowledge: KnownRound) -> tuple[Tensor, Tensor]:
    """Return the target client's message under D and under D', float64 [T, P], twice.

    A client whose data are replaced trains on as many records of the pool, in the same order.
    """
    federation, client, scheme = (
        knowledge.federation,
        knowledge.game.target_client,
        knowledge.rules.scheme,
    )
    present = cohort.sent(knowledge, client)
    if scheme.privacy.neighbouring is not Neighbouring.REPLACE:
        return present, torch.zeros_like(present)
    records = federation.pool(replacements(federation, client))
    plan = planned(knowledge.rules, client, knowledge.game, len(records[1]))
    update = updates(scheme.training, federation, knowledge.parameters, *records, [plan])
    return present, clip(update[0], scheme.training.clipping_norm)


def total(knowledge: KnownRound, clients: Collection[int]) -> Tensor:
    """Return what some clients add to the sum together, float64 [T, P]."""
    parameters, participation = knowledge.parameters, knowledge.participation
    added = torch.zeros(parameters.shape, dtype=torch.float64, device=parameters.device)
    joins = None if participation is None else participation.any(0).tolist()
    training = [client for client in clients if joins is None or joins[client]]
    for batch in alike(knowledge.federation, training, parameters):
        sent = clip(trained(knowledge, batch), knowledge.rules.scheme.training.clipping_norm)
        if participation is not None:
            sent = sent * participation[:, batch].T[:, :, None]
        added += sent.sum(0)
    return added


def replacements(federation: Federation, client: int) -> list[int]:
    """Return the positions in the pool of a client's replacements, the first in its order."""
    return list(range(len(federation.owned_by(client))))
