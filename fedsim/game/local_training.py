"""A client's own training where clients are the unit of privacy: SGD without noise, many at once.

A row is a pair of a client and a trial, so that small clients of equal size are one computation.
"""

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedsim.common.blocks import slices
from fedsim.common.randomness import Role, generator
from fedsim.config.objects import GameRules
from fedsim.config.training import TrainingConfig
from fedsim.game.federation import Federation
from fedsim.game.known_round import KnownRound
from fedsim.game.round_game import RoundGame

NOBODY = -1
"""Position that fills up a short batch."""


def schedule(
    training: TrainingConfig,
    seed: int,
    trials: Sequence[int],
    round: int,
    client: int,
    records: int,
) -> npt.NDArray[np.int64]:
    """Return the positions of a client's records in each step.

    Every epoch is a new order of the records, cut into batches, which the adversary knows.

    Returns: positions [T, steps, batch], with `NOBODY` at the end of a short batch; [1, steps, n]
    where each step takes all records in all trials.
    """
    size, steps = training.batch_size, training.local_batches
    if not 0 < size < records:
        shape = (1, steps or training.local_epochs, records)
        return np.broadcast_to(np.arange(records), shape)
    in_epoch = -(-records // size)
    epochs = -(-steps // in_epoch) if steps else training.local_epochs
    keys = np.empty((len(trials), epochs, records))
    for row, trial in zip(keys, trials, strict=True):
        stream = generator(seed, Role.LOCAL_ORDER, trial=trial, round=round, partition=client)
        stream.random(out=row)
    order = keys.argsort(axis=-1)
    # Fill up the last batch of each epoch.
    filled = np.full((len(trials), epochs, in_epoch * size), NOBODY, dtype=np.int64)
    filled[:, :, :records] = order
    return filled.reshape(len(trials), -1, size)[:, : steps or None]


def updates(
    training: TrainingConfig,
    federation: Federation,
    parameters: Tensor,
    features: Tensor,
    labels: Tensor,
    plans: Sequence[npt.NDArray[np.int64]],
) -> Tensor:
    """Return u = theta - theta_j after the training of some clients, unclipped.

    It points downhill like a gradient, since the server subtracts it. A step goes along the mean
    gradient of its batch, with momentum, and back towards theta by the proximal term (Li et al.,
    "Federated optimization in heterogeneous networks", 2020, Algorithm 2).

    features: [n, *shape], the clients' records one client after another.
    plans: of each client from `schedule`, into all n records, all of one shape.
    Returns: float64 [m, T, P] for m clients.
    """
    trials = len(parameters)
    plan = torch.from_numpy(np.stack(plans)).to(parameters.device).expand(-1, trials, -1, -1)
    rate, momentum = training.local_rate, training.local_momentum
    start = parameters.repeat(len(plans), 1)
    # Summed in float64 beside the model, since differences of float32 models lose digits.
    update = torch.zeros(start.shape, dtype=torch.float64, device=start.device)
    velocity, model = None, start
    for step in range(plan.shape[2]):
        chosen = plan[:, :, step].reshape(len(start), -1)
        filled = chosen != NOBODY
        moved = federation.clipper.clipped_sum(
            model, features, labels, filled.to(start), chosen.clamp(min=0)
        )
        # Along the batch's mean gradient.
        moved *= rate / filled.sum(1, keepdim=True)
        if training.proximal_term:
            moved -= rate * training.proximal_term * update
        if momentum:
            velocity = moved if velocity is None else moved.add_(velocity, alpha=momentum)
        update += moved
        model = (start - update).float()
    return update.unflatten(0, (len(plans), trials))


def trained(knowledge: KnownRound, clients: Sequence[int]) -> Tensor:
    """Return the `updates` of some `alike` clients from their own records: float64 [m, T, P]."""
    federation = knowledge.federation
    owned = [federation.owned_by(client) for client in clients]
    plans, before = [], 0
    for client, positions in zip(clients, owned, strict=True):
        plan = planned(knowledge.rules, client, knowledge.game, len(positions))
        plans.append(np.where(plan == NOBODY, NOBODY, plan + before))
        before += len(positions)
    records = federation.members(np.concatenate(owned))
    return updates(
        knowledge.rules.scheme.training, federation, knowledge.parameters, *records, plans
    )


def planned(rules: GameRules, client: int, game: RoundGame, records: int) -> npt.NDArray[np.int64]:
    streams = rules.trials.streams(game.trials)
    return schedule(rules.scheme.training, rules.seed, streams, game.round, client, records)


def clip(update: Tensor, clipping_norm: float) -> Tensor:
    """Return u min(1, C/|u|) for each trial, float64 [T, P]. Raises FloatingPointError."""
    norms = torch.linalg.vector_norm(update, dim=-1, keepdim=True)
    if not bool(torch.isfinite(norms).all()):
        raise FloatingPointError(
            "a client's update is not finite, since its own training diverged; lower "
            "training.local-learning-rate, or the length or momentum of its training"
        )
    return update * (clipping_norm / norms).clamp(max=1.0)


def alike(
    federation: Federation, clients: Collection[int], parameters: Tensor
) -> Iterator[list[int]]:
    """Yield groups of clients that train as one batch: of equal size, and within a memory block."""
    # Update, velocity and gradient in float64; model, its start and a copy in float32.
    each = 48 * parameters.numel()
    most = max(1, int(federation.clipper.block_bytes(parameters.device) / each))
    by_size: dict[int, list[int]] = {}
    for client in sorted(clients):
        by_size.setdefault(len(federation.owned_by(client)), []).append(client)
    for _, group in sorted(by_size.items()):
        yield from (group[part] for part in slices(len(group), most))
