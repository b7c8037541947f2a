"""Client-level privacy: neighbouring federations differ in all data of one client.

In every round a client trains a copy of the model on its own records, without noise, and sends the
difference, clipped as a whole. Source: McMahan et al., "Learning differentially private recurrent
language models" (2018), Algorithm 1, with equal weights and a fixed normaliser. The message is a
function of the model, the client's data and the public order of its batches. An adversary with
these knows both hypotheses about a round, so that the posterior is exact for any training.
"""

from collections.abc import Collection

import torch
from torch import Tensor

from fedsim.game import cohort
from fedsim.game.federation import Federation
from fedsim.game.known_round import KnownRound
from fedsim.game.local_training import alike, clip, planned, trained, updates
from fedsim.privacy.mechanism import Neighbouring


def contribution(seen: KnownRound, client: int, worlds: Tensor | None = None) -> Tensor:
    """Return a client's part of the sum of a round: 0 where it takes no part.

    worlds: bool [T], for the target client: where False, all its data are missing or replaced. None
    for other clients.
    Returns: float64 [T, P], each row of norm at most C.
    Raises FloatingPointError if the client's training diverges.
    """
    joins = None if seen.participation is None else seen.participation[:, client, None]
    if joins is not None and not bool(joins.any()):
        return torch.zeros_like(seen.parameters, dtype=torch.float64)
    if worlds is None:
        sent = cohort.sent(seen, client)
    else:
        present, absent = challenge_contributions(seen)
        sent = torch.where(worlds[:, None], present, absent)
    return sent if joins is None else sent * joins


def challenge_contributions(seen: KnownRound) -> tuple[Tensor, Tensor]:
    """Return the target client's message under D and under D', if it takes part.

    Under D' a client without data sends 0 (add-remove). A client whose data are replaced trains on
    as many records of the pool, in the same order.

    Returns: float64 [T, P], twice.
    """
    federation, client, scheme = seen.federation, seen.game.target_client, seen.rules.scheme
    present = cohort.sent(seen, client)
    if scheme.privacy.neighbouring is not Neighbouring.REPLACE:
        return present, torch.zeros_like(present)
    records = federation.pool(replacements(federation, client))
    plan = planned(seen.rules, client, seen.game, len(records[1]))
    update = updates(scheme.training, federation, seen.parameters, *records, [plan])
    return present, clip(update[0], scheme.training.clipping_norm)


def total(seen: KnownRound, clients: Collection[int]) -> Tensor:
    """Return what some clients add to the sum together, float64 [T, P]."""
    parameters, participation = seen.parameters, seen.participation
    added = torch.zeros(parameters.shape, dtype=torch.float64, device=parameters.device)
    joins = None if participation is None else participation.any(0).tolist()
    training = [client for client in clients if joins is None or joins[client]]
    for batch in alike(seen.federation, training, parameters):
        sent = clip(trained(seen, batch), seen.rules.scheme.training.clipping_norm)
        if participation is not None:
            sent = sent * participation[:, batch].T[:, :, None]
        added += sent.sum(0)
    return added


def replacements(federation: Federation, client: int) -> list[int]:
    """Return the positions in the pool of a client's replacements: the first ones, as many.

    The pool is in the random order of the draw of D, so that they are a random sample.
    """
    return list(range(len(federation.owned_by(client))))
