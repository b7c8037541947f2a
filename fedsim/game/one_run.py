"""Canaries for a one-run audit: drawn before the training, planted in it, scored by its releases.

Trials share the canaries, not the coins that include them, so that each is a one-run audit. An
included canary adds at most C to the sum of every round, as any record or client may. Scores do not
use the coins, which must be fair and need not be secret.
"""

from collections.abc import Collection, Iterator
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from adversaries.arrays import Bools, Floats, Ints
from adversaries.errors import InputError
from fedsim.common.randomness import StreamRole, generator
from fedsim.configuration import Config
from fedsim.configuration.challenge import CanariesConfig
from fedsim.game.federation import Federation
from fedsim.game.known_round import KnownRound

BLOCK = 64
"""Canaries whose directions come from one random stream."""

KEPT = 2**23
"""Most coordinates of directions kept between rounds (64 MiB); more are drawn again."""

FORMED = 2**24
"""Most coordinates of records' gradients in memory at a time (128 MiB)."""

DRAW = 1
"""Round of the seed tree in which canaries are drawn; blocks of directions use later rounds."""


KINDS = ("gradient", "mislabelled")
"""The kinds of `canaries.kind`."""


def included(canary_count: int, seed: int, trials: range) -> Bools:
    """Return which canaries are included, bool [T, m]; depends only on seed and trial."""
    coins = np.empty((len(trials), canary_count), dtype=np.bool_)
    for row, trial in zip(coins, trials, strict=True):
        row[:] = generator(seed, StreamRole.ONE_RUN, trial=trial).random(row.size) < 0.5
    return coins


def hosts(config: Config) -> Ints:
    """Return the client of each canary, int64 [m]: they are dealt to the clients in turn."""
    return np.arange(config.canaries.count) % config.federation.clients


def planted(knowledge: KnownRound, clients: Collection[int]) -> Tensor:
    """Return the canaries' part of some clients' sums, float64 [T, P]."""
    config, parameters = knowledge.config, knowledge.parameters
    planted_at = np.isin(hosts(config), list(clients))
    if not planted_at.any():
        return torch.zeros_like(parameters, dtype=torch.float64)
    drawn = included(config.canaries.count, config.run.seed, knowledge.game.trials)
    weights = torch.from_numpy((drawn & planted_at).astype(np.float64)).to(parameters.device)
    if config.canaries.kind == "mislabelled":
        records = _wrong_records(config, knowledge.federation)
        return knowledge.federation.clipper.clipped_sum(
            parameters, *records, weights.to(parameters)
        )
    total = torch.zeros(parameters.shape, dtype=torch.float64, device=parameters.device)
    for place, block in directions(config.canaries.count, config.run.seed, parameters.shape[1]):
        total += weights[:, place] @ torch.from_numpy(block).to(total)
    return config.training.clipping_norm * total


def scores(
    config: Config, federation: Federation | None, parameters: Tensor, released: Tensor
) -> Tensor:
    """Return the scores of a round's canaries, float64 [T, m], by its release.

    It is the release's inner product with the canary's part, without D's clipped gradients for
    `canaries.known-data`.

    federation: may be None unless `needs_data`.
    parameters: float32 [T, P], models at the start of the round.
    released: [T, P], the noisy sum.
    """
    released = released.double()
    if config.canaries.known_data:
        assert federation is not None
        members = np.arange(len(federation.client_of))
        released = released - federation.clipped_sum(parameters, members)
    if config.canaries.kind == "mislabelled":
        assert federation is not None
        at_once, clipper = max(1, FORMED // parameters.numel()), federation.clipper
        records = zip(
            *(each.split(at_once) for each in _wrong_records(config, federation)), strict=True
        )
        products = [
            torch.einsum("tnp,tp->tn", clipper.clipped_gradients(parameters, *part), released)
            for part in records
        ]
        return torch.cat(products, dim=1)
    blocks = directions(config.canaries.count, config.run.seed, parameters.shape[1])
    products = [released @ torch.from_numpy(block).to(released).T for _, block in blocks]
    return config.training.clipping_norm * torch.cat(products, dim=1)


def needs_data(canaries: CanariesConfig) -> bool:
    """Return whether scores need records besides the releases."""
    return canaries.known_data or canaries.kind == "mislabelled"


def check_room(canaries: CanariesConfig, federation: Federation) -> None:
    """Raise InputError if the pool has too few records for the configured canaries."""
    if canaries.kind == "mislabelled" and canaries.count > len(federation.split.pool):
        raise InputError(
            f"canaries.count is {canaries.count}, but the pool has only "
            f"{len(federation.split.pool)} records to mislabel; lower canaries.count, data.records "
            "or data.held-out"
        )


def directions(canary_count: int, seed: int, parameters: int) -> Iterator[tuple[slice, Floats]]:
    """Yield positions and unit directions [b, P] of canaries of kind "gradient", in blocks."""
    if canary_count * parameters <= KEPT:
        yield slice(0, canary_count), _kept(seed, canary_count, parameters)
        return
    yield from _directions(seed, canary_count, parameters)


def mislabelled(seed: int, canary_count: int, federation: Federation) -> tuple[Ints, Ints]:
    """Return positions in the pool and wrong labels of "mislabelled" canaries, int64 [m] both."""
    split = federation.split
    stream = generator(seed, StreamRole.ONE_RUN, round=DRAW)
    positions = stream.permutation(len(split.pool))[:canary_count]
    classes = split.dataset.classes
    right = split.pool_records.labels[positions]
    return positions, (right + stream.integers(1, classes, len(positions))) % classes


def _directions(seed: int, count: int, parameters: int) -> Iterator[tuple[slice, Floats]]:
    for block, first in enumerate(range(0, count, BLOCK)):
        place = slice(first, min(first + BLOCK, count))
        stream = generator(seed, StreamRole.ONE_RUN, round=DRAW + block)
        drawn = stream.standard_normal((place.stop - place.start, parameters))
        yield place, drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


@lru_cache(maxsize=1)
def _kept(seed: int, count: int, parameters: int) -> Floats:
    return np.concatenate([block for _, block in _directions(seed, count, parameters)])


def _wrong_records(config: Config, federation: Federation) -> tuple[Tensor, Tensor]:
    positions, labels = mislabelled(config.run.seed, config.canaries.count, federation)
    features, right = federation.pool(positions.tolist())
    return features, torch.from_numpy(labels).to(right)
