"""Client-level privacy: neighbouring federations differ in all data of one client.

In every round a client trains a copy of the model on its own records, without noise, and sends how
far it came, clipped as a whole. Source: McMahan et al., "Learning differentially private recurrent
language models" (2018), Algorithm 1, with equal weights and a fixed normaliser. What a client sends
is a function of the model, its data and the public order of its batches: whoever knows these knows
the two hypotheses about a round, and the posterior is exact whatever the client did in between.
"""

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedsim.common.randomness import Role, generator
from fedsim.config import Config, TrainingConfig
from fedsim.game.federation import Federation
from fedsim.game.round_game import RoundGame
from fedsim.privacy.mechanism import Neighbouring


def contribution(
    config: Config,
    federation: Federation,
    client: int,
    parameters: Tensor,
    game: RoundGame,
    worlds: Tensor | None = None,
    participation: Tensor | None = None,
) -> Tensor:
    """Return what a client adds to the sum of a round: 0 where it takes no part.

    Args:
        config: the experiment.
        federation: its data and model.
        client: the partition.
        parameters: float32 [T, P], the models that the round begins with.
        game: the round, its trials and the challenge.
        worlds: bool [T], for the target client: where False, all its data are missing, or
            replaced. None for others.
        participation: bool [T, m], which clients take part; None for all.

    Returns:
        float64 [T, P], each row of norm at most C.

    Raises:
        FloatingPointError: the client's training diverges.
    """
    there = None if participation is None else participation[:, client, None]
    if there is not None and not bool(there.any()):
        return torch.zeros_like(parameters, dtype=torch.float64)
    if worlds is None:
        records = federation.members(federation.owned_by(client))
        sent = _contribution(config, federation, client, parameters, game, *records)
    else:
        present, absent = challenge_contributions(config, federation, parameters, game)
        sent = torch.where(worlds[:, None], present, absent)
    return sent if there is None else sent * there


def challenge_contributions(
    config: Config, federation: Federation, parameters: Tensor, game: RoundGame
) -> tuple[Tensor, Tensor]:
    """Return what the target client sends under D and under D'.

    Under D' a client without data sends 0 (add-remove), and one whose data are replaced trains on
    as many records of the pool, in the same order.

    Args:
        config: the experiment.
        federation: its data and model.
        parameters: float32 [T, P].
        game: the round, its trials and the challenge.

    Returns:
        float64 [T, P], twice.
    """
    client = game.target_client
    present = contribution(config, federation, client, parameters, game)
    if config.privacy.neighbouring is not Neighbouring.REPLACE:
        return present, torch.zeros_like(present)
    records = federation.pool(replacements(federation, client))
    return present, _contribution(config, federation, client, parameters, game, *records)


def total(
    config: Config,
    federation: Federation,
    clients: Collection[int],
    parameters: Tensor,
    game: RoundGame,
    participation: Tensor | None = None,
) -> Tensor:
    """Return what some clients add to the sum together, float64 [T, P].

    Args:
        config: the experiment.
        federation: its data and model.
        clients: the partitions.
        parameters: float32 [T, P].
        game: the round, its trials and the challenge.
        participation: bool [T, m], which clients take part; None for all.
    """
    added = torch.zeros(parameters.shape, dtype=torch.float64, device=parameters.device)
    for client in sorted(clients):
        added += contribution(
            config, federation, client, parameters, game, participation=participation
        )
    return added


def replacements(federation: Federation, client: int) -> list[int]:
    """Return the positions in the pool of what replaces a client's data: as many, from the start.

    The pool has no order but that of the draw of D, so that they are a random sample.

    Args:
        federation: whose client it is.
        client: the partition.
    """
    return list(range(len(federation.owned_by(client))))


def clip(update: Tensor, clipping_norm: float) -> Tensor:
    """Return u min(1, C/|u|) for each trial, [T, P].

    Args:
        update: u, float64 [T, P].
        clipping_norm: C.

    Raises:
        FloatingPointError: an update is not finite.
    """
    norms = torch.linalg.vector_norm(update, dim=-1, keepdim=True)
    if not bool(torch.isfinite(norms).all()):
        raise FloatingPointError(
            "a client's update is not finite: its own training diverged; lower "
            "training.local-learning-rate or training.local-epochs"
        )
    return update * (clipping_norm / norms).clamp(max=1.0)


def local_update(
    federation: Federation,
    parameters: Tensor,
    features: Tensor,
    labels: Tensor,
    rate: float,
    batches: Iterator[Tensor | None],
) -> Tensor:
    """Return u = theta - theta_j after plain SGD on a client's records, unclipped.

    A descent direction, as a gradient is one: the server subtracts it.

    Args:
        federation: whose model is trained.
        parameters: theta, float32 [T, P].
        features: [n, *shape].
        labels: [n] integers.
        rate: of each step along a batch's mean gradient.
        batches: for each step, which records take part, bool [T, n], as many in every trial; None
            for all.

    Returns:
        float64 [T, P].
    """
    # Summed in float64 beside the model: the difference of two float32 models would be rounded.
    update = torch.zeros(parameters.shape, dtype=torch.float64, device=parameters.device)
    model = parameters
    for batch in batches:
        weights = None if batch is None else batch.to(parameters)
        size = len(labels) if batch is None else int(batch[0].sum())
        update += (rate / size) * federation.clipper.clipped_sum(model, features, labels, weights)
        model = (parameters.double() - update).float()
    return update


def batches(
    training: TrainingConfig,
    seed: int,
    trials: Sequence[int],
    round: int,
    client: int,
    records: int,
) -> Iterator[npt.NDArray[np.bool_] | None]:
    """Yield which of a client's records each step takes.

    Every epoch is a new order of the records, cut into batches of `training.batch-size`, the last
    perhaps smaller. The order of a trial is a function of (seed, trial, round, client) alone. It is
    no secret: clipping bounds the update whatever the order, and the adversary knows it.

    Args:
        training: says how many epochs, and the size of a batch.
        seed: of the run.
        trials: the numbers of the T trials.
        round: counts from 1.
        client: the partition.
        records: n, how many it has.

    Yields:
        bool [T, n]; None where a step takes all of them.
    """
    size, epochs = training.batch_size, training.local_epochs
    if not 0 < size < records:
        yield from [None] * epochs
        return
    keys = np.empty((len(trials), epochs, records))
    for row, trial in zip(keys, trials, strict=True):
        stream = generator(seed, Role.LOCAL_ORDER, trial=trial, round=round, partition=client)
        stream.random(out=row)
    order = keys.argsort(axis=-1)
    for epoch in range(epochs):
        for first in range(0, records, size):
            chosen = np.zeros((len(trials), records), dtype=np.bool_)
            np.put_along_axis(chosen, order[:, epoch, first : first + size], True, axis=1)
            yield chosen


def _contribution(
    config: Config,
    federation: Federation,
    client: int,
    parameters: Tensor,
    game: RoundGame,
    features: Tensor,
    labels: Tensor,
) -> Tensor:
    training = config.training
    seed, count = config.run.seed, len(labels)
    streams = config.trials.streams(game.trials)
    drawn = batches(training, seed, streams, game.round, client, count)
    update = local_update(
        federation,
        parameters,
        features,
        labels,
        training.local_learning_rate or training.learning_rate,
        (None if each is None else torch.from_numpy(each).to(parameters.device) for each in drawn),
    )
    return clip(update, training.clipping_norm)
