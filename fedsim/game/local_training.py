"""A client's own training where clients are the unit of privacy: SGD, many clients at once."""

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from adversaries.arrays import Ints
from fedsim.common.blocks import slices
from fedsim.common.randomness import StreamRole, generator
from fedsim.configuration import Config
from fedsim.configuration.training import TrainingConfig
from fedsim.game.federation import Federation
from fedsim.game.known_round import KnownRound
from fedsim.game.round_game import RoundGame
from fedsim.privacy.mechanism import Neighbouring

LOG = logging.getLogger(__name__)

NOBODY = -1
"""Position that fills up a short batch."""


def schedule(
    training: TrainingConfig,
    seed: int,
    trials: Sequence[int],
    round: int,
    client: int,
    records: int,
) -> Ints:
    """Return the positions of a client's records in each step.

    Every epoch is a new order of the records, cut into batches, which the adversary knows.

    Returns: positions [T, steps, batch], with `NOBODY` at the end of a short batch; [1, steps, n]
    where each step takes all records in all trials.
    """
    size, epochs = training.batch_size, training.local_epochs
    if not 0 < size < records:
        return np.broadcast_to(np.arange(records), (1, epochs, records))
    in_epoch = -(-records // size)
    keys = np.empty((len(trials), epochs, records))
    for row, trial in zip(keys, trials, strict=True):
        stream = generator(seed, StreamRole.LOCAL_ORDER, trial=trial, round=round, partition=client)
        stream.random(out=row)
    order = keys.argsort(axis=-1)
    # Fill up the last batch of each epoch.
    filled = np.full((len(trials), epochs, in_epoch * size), NOBODY, dtype=np.int64)
    filled[:, :, :records] = order
    return filled.reshape(len(trials), -1, size)


def updates(
    training: TrainingConfig,
    federation: Federation,
    parameters: Tensor,
    features: Tensor,
    labels: Tensor,
    plans: Sequence[Ints],
) -> Tensor:
    """Return u = theta - theta_j after the training of some clients, unclipped.

    It points downhill like a gradient, since the server subtracts it. A step goes along the mean
    gradient of its batch.

    features: [n, *shape], the clients' records one client after another.
    plans: of each client from `schedule`, into all n records, all of one shape.
    Returns: float64 [m, T, P] for m clients.
    """
    trials = len(parameters)
    rate = training.local_rate
    start = parameters.repeat(len(plans), 1)
    # Summed in float64 beside the model, since differences of float32 models lose digits.
    update = torch.zeros(start.shape, dtype=torch.float64, device=start.device)
    model = start
    for step in range(plans[0].shape[1]):
        # One step at a time, since all steps of many records would take too much memory.
        plan = torch.from_numpy(np.stack([each[:, step] for each in plans])).to(start.device)
        chosen = plan.expand(-1, trials, -1).reshape(len(start), -1)
        filled = chosen != NOBODY
        # With real noise, `clip` later replaces an update that is not finite by 0.
        moved = federation.clipper.clipped_sum(
            model,
            features,
            labels,
            filled.to(start),
            chosen.clamp(min=0),
            checked=not federation.clipper.exact,
        )
        # Along the batch's mean gradient.
        moved *= rate / filled.sum(1, keepdim=True)
        update += moved
        model = (start - update).float()
    return update.unflatten(0, (len(plans), trials))


def trained(knowledge: KnownRound, clients: Sequence[int]) -> Tensor:
    """Return the `updates` of some `alike` clients from their own records: float64 [m, T, P]."""
    federation = knowledge.federation
    owned = [federation.owned_by(client) for client in clients]
    plans, before = [], 0
    for client, positions in zip(clients, owned, strict=True):
        plan = planned(knowledge.config, client, knowledge.game, len(positions))
        # A plan of whole batches is a view of one step, which one client alone keeps.
        plans.append(np.where(plan == NOBODY, NOBODY, plan + before) if before else plan)
        before += len(positions)
    records = federation.members(np.concatenate(owned))
    return updates(knowledge.config.training, federation, knowledge.parameters, *records, plans)


def planned(config: Config, client: int, game: RoundGame, records: int) -> Ints:
    return schedule(config.training, config.run.seed, game.trials, game.round, client, records)


def clip(update: Tensor, clipping_norm: float, exact: bool = False) -> Tensor:
    """Return u min(1, C/|u|) for each trial, float64 [T, P], never longer than C.

    exact: needed for real noise. An update that is not finite then becomes 0: an error would tell
    the server, which chose the model, something about the records without a charge.
    Raises FloatingPointError if an update is not finite, unless exact.
    """
    largest = update.abs().amax(-1, keepdim=True)
    finite = torch.isfinite(largest)
    if not bool(finite.all()):
        diverged = (
            "a client's update is not finite, since its own training diverged; lower "
            "training.local-learning-rate, or the length or momentum of its training"
        )
        if not exact:
            raise FloatingPointError(diverged)
        LOG.warning("%s. It counts as 0", diverged)
        update, largest = update.where(finite, 0.0), largest.where(finite, 0.0)
    # Powers of two change no digits, and the squares of a scaled update do not overflow.
    halves = torch.frexp(largest).mantissa * 2
    power = torch.where(largest > 1, largest / halves, 1.0)
    scaled = update / power
    norms = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    # A sum of P squares is at most P 2^-53 of itself too small, in any order (Higham 2002, 4.2).
    room = clipping_norm * (1 - (update.shape[-1] + 8) * 2.0**-53)
    return scaled * torch.minimum(power, room / norms)


def _clipped(knowledge: KnownRound, update: Tensor) -> Tensor:
    norm, exact = knowledge.config.training.clipping_norm, knowledge.federation.clipper.exact
    return clip(update, norm, exact)


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


def contribution(knowledge: KnownRound, client: int, worlds: Tensor | None = None) -> Tensor:
    """Return a client's part of a sum, float64 [T, P], norm <= C. It raises what `clip` raises."""
    joins = None if knowledge.participation is None else knowledge.participation[:, client, None]
    if joins is not None and not bool(joins.any()):
        return torch.zeros_like(knowledge.parameters, dtype=torch.float64)
    if worlds is None:
        update = sent(knowledge, client)
    else:
        present, absent = challenge_contributions(knowledge)
        update = torch.where(worlds[:, None], present, absent)
    return update if joins is None else update * joins


def challenge_contributions(knowledge: KnownRound) -> tuple[Tensor, Tensor]:
    """Return the target client's message under D and under D', float64 [T, P], twice."""
    federation, client, config = (
        knowledge.federation,
        knowledge.game.target_client,
        knowledge.config,
    )
    present = sent(knowledge, client)
    if config.privacy.neighbouring is not Neighbouring.REPLACE:
        return present, torch.zeros_like(present)
    records = federation.pool(replacements(federation, client))
    plan = planned(knowledge.config, client, knowledge.game, len(records[1]))
    update = updates(config.training, federation, knowledge.parameters, *records, [plan])
    return present, _clipped(knowledge, update[0])


def total(knowledge: KnownRound, clients: Collection[int]) -> Tensor:
    """Return what some clients add to the sum together, float64 [T, P]."""
    parameters, participation = knowledge.parameters, knowledge.participation
    added = torch.zeros(parameters.shape, dtype=torch.float64, device=parameters.device)
    joins = None if participation is None else participation.any(0).tolist()
    training = [client for client in clients if joins is None or joins[client]]
    for batch in alike(knowledge.federation, training, parameters):
        sent = _clipped(knowledge, trained(knowledge, batch))
        if participation is not None:
            sent = sent * participation[:, batch].T[:, :, None]
        added += sent.sum(0)
    return added


def replacements(federation: Federation, client: int) -> list[int]:
    """Return the positions in the pool of a client's replacements, the first in its order."""
    return list(range(len(federation.owned_by(client))))


@dataclass
class _Cohort:
    waiting: set[int]
    played_with: tuple[Config, int] | None = None
    game: tuple[int, range] | None = None
    parameters: Tensor | None = None
    trained: dict[int, Tensor] = field(default_factory=dict)

    def is_of(self, knowledge: KnownRound) -> bool:
        """Return whether a client's message equals the one that the others trained for."""
        played_with = knowledge.config, id(knowledge.federation)
        game = knowledge.game.round, knowledge.game.trials
        if self.parameters is None:
            self.played_with, self.parameters, self.game = played_with, knowledge.parameters, game
        same = self.game == game and self.played_with == played_with
        return same and self.parameters.equal(knowledge.parameters)


_PLAYED: ContextVar[_Cohort | None] = ContextVar("played", default=None)


@contextmanager
def played(clients: Iterable[int]) -> Iterator[None]:
    """Let this process train some clients together, while it answers for them."""
    token = _PLAYED.set(_Cohort(set(clients)))
    try:
        yield
    finally:
        _PLAYED.reset(token)


def sent(knowledge: KnownRound, client: int) -> Tensor:
    """Return a client's message from its own data, float64 [T, P].

    It raises what `clip` raises.
    """
    cohort = _PLAYED.get()
    if cohort is None or not cohort.is_of(knowledge):
        (update,) = trained(knowledge, [client])
    else:
        if client not in cohort.trained:
            _train_with(cohort, knowledge, client)
        update = cohort.trained.pop(client)
    # Clipped one by one, so that an update that is not finite fails only its own client.
    return _clipped(knowledge, update)


def _train_with(cohort: _Cohort, knowledge: KnownRound, client: int) -> None:
    """Train a client, and waiting clients that fit into one batch with it."""
    waiting = cohort.waiting | {client}
    groups = alike(knowledge.federation, waiting, knowledge.parameters)
    batch = next(group for group in groups if client in group)
    try:
        updates = trained(knowledge, batch)
    except FloatingPointError:
        # One client's training diverges: from now on each client trains, and fails, by itself.
        cohort.waiting, batch = set(), [client]
        updates = trained(knowledge, batch)
    cohort.trained |= dict(zip(batch, updates, strict=True))
    cohort.waiting -= set(batch)
