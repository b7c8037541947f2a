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

from fedsim.config.objects import GameRules
from fedsim.game import cohort
from fedsim.game.federation import Federation
from fedsim.game.local_training import alike, clip, planned, trained, updates
from fedsim.game.round_game import RoundGame
from fedsim.privacy.mechanism import Neighbouring


def contribution(
    rules: GameRules,
    federation: Federation,
    client: int,
    parameters: Tensor,
    game: RoundGame,
    worlds: Tensor | None = None,
    participation: Tensor | None = None,
) -> Tensor:
    """Return what a client adds to the sum of a round: 0 where it takes no part.

    parameters: float32 [T, P], the models that the round begins with.
    worlds: bool [T], for the target client: where False, all its data are missing, or replaced.
    None for others.
    participation: bool [T, m], which clients take part; None for all.
    Returns: float64 [T, P], each row of norm at most C.
    Raises FloatingPointError if the client's training diverges.
    """
    there = None if participation is None else participation[:, client, None]
    if there is not None and not bool(there.any()):
        return torch.zeros_like(parameters, dtype=torch.float64)
    if worlds is None:
        sent = cohort.sent(rules, federation, client, parameters, game)
    else:
        present, absent = challenge_contributions(rules, federation, parameters, game)
        sent = torch.where(worlds[:, None], present, absent)
    return sent if there is None else sent * there


def challenge_contributions(
    rules: GameRules, federation: Federation, parameters: Tensor, game: RoundGame
) -> tuple[Tensor, Tensor]:
    """Return what the target client sends under D and under D'.

    Under D' a client without data sends 0 (add-remove), and one whose data are replaced trains on
    as many records of the pool, in the same order.

    parameters: float32 [T, P].
    Returns: float64 [T, P], twice.
    """
    client = game.target_client
    present = contribution(rules, federation, client, parameters, game)
    if rules.scheme.privacy.neighbouring is not Neighbouring.REPLACE:
        return present, torch.zeros_like(present)
    records = federation.pool(replacements(federation, client))
    plan = planned(rules, client, game, len(records[1]))
    update = updates(rules.scheme.training, federation, parameters, *records, [plan])
    return present, clip(update[0], rules.scheme.training.clipping_norm)


def total(
    rules: GameRules,
    federation: Federation,
    clients: Collection[int],
    parameters: Tensor,
    game: RoundGame,
    participation: Tensor | None = None,
) -> Tensor:
    """Return what some clients add to the sum together, float64 [T, P].

    parameters: float32 [T, P].
    participation: bool [T, m], which clients take part; None for all.
    """
    added = torch.zeros(parameters.shape, dtype=torch.float64, device=parameters.device)
    there = None if participation is None else participation.any(0).tolist()
    asked = [client for client in clients if there is None or there[client]]
    for batch in alike(federation, asked, parameters):
        update = trained(rules, federation, batch, parameters, game)
        sent = clip(update, rules.scheme.training.clipping_norm)
        if participation is not None:
            sent = sent * participation[:, batch].T[:, :, None]
        added += sent.sum(0)
    return added


def replacements(federation: Federation, client: int) -> list[int]:
    """Return the positions in the pool of what replaces a client's data: as many, from the start.

    The pool has no order but that of the draw of D, so that they are a random sample.
    """
    return list(range(len(federation.owned_by(client))))
