"""Client-level privacy: neighbouring federations differ in all data of one client.

In every round a client trains a copy of the model on its own records, without noise, and sends how
far it came, clipped as a whole. Source: McMahan et al., "Learning differentially private recurrent
language models" (2018), Algorithm 1, with equal weights and a fixed normaliser. What a client sends
is a function of the model, its data and the public order of its batches: whoever knows these knows
the two hypotheses about a round, and the posterior is exact whatever the client did in between.
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
    """Return what a client adds to the sum of a round: 0 where it takes no part.

    worlds: bool [T], for the target client: where False, all its data are missing, or replaced.
    None for others.
    Returns: float64 [T, P], each row of norm at most C.
    Raises FloatingPointError if the client's training diverges.
    """
    there = None if seen.participation is None else seen.participation[:, client, None]
    if there is not None and not bool(there.any()):
        return torch.zeros_like(seen.parameters, dtype=torch.float64)
    if worlds is None:
        sent = cohort.sent(seen, client)
    else:
        present, absent = challenge_contributions(seen)
        sent = torch.where(worlds[:, None], present, absent)
    return sent if there is None else sent * there


def challenge_contributions(seen: KnownRound) -> tuple[Tensor, Tensor]:
    """Return what the target client sends under D and under D', if it takes part.

    Under D' a client without data sends 0 (add-remove), and one whose data are replaced trains on
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
    there = None if participation is None else participation.any(0).tolist()
    asked = [client for client in clients if there is None or there[client]]
    for batch in alike(seen.federation, asked, parameters):
        sent = clip(trained(seen, batch), seen.rules.scheme.training.clipping_norm)
        if participation is not None:
            sent = sent * participation[:, batch].T[:, :, None]
        added += sent.sum(0)
    return added


def replacements(federation: Federation, client: int) -> list[int]:
    """Return the positions in the pool of what replaces a client's data: as many, from the start.

    The pool has no order but that of the draw of D, so that they are a random sample.
    """
    return list(range(len(federation.owned_by(client))))
