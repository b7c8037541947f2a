"""The challenge: a pair of neighbouring datasets (D, D'), and each trial's world."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from adversaries.arrays import Bools
from adversaries.errors import InputError
from adversaries.neighbours.dataset_sensitivity import rank_clients, select, select_one
from adversaries.neighbours.dissimilarity import OF_RAW_FEATURES, Columns, Features
from adversaries.neighbours.search import Progress
from fedsim.common import device
from fedsim.common.blocks import slices
from fedsim.common.device import one_thread
from fedsim.common.randomness import StreamRole, generator
from fedsim.configuration import Config
from fedsim.configuration.federation import FederationConfig
from fedsim.game import federation
from fedsim.game.federation import Federation
from fedsim.learning.training import models
from fedsim.privacy.mechanism import Neighbouring

BLOCK_SCALARS = 2**20
"""Scalars of the records that are embedded at a time."""


@torch.no_grad()
def embed(
    loaded: Federation, features: npt.NDArray[np.float32], parameters: Tensor
) -> npt.NDArray[np.float32]:
    """Return the input of the model's last linear layer, float32 [N, E].

    features: float32 [N, *shape].
    parameters: [P], of one model.
    Raises InputError if the model has no linear layer, or uses the last one more than once.
    """
    model = copy.deepcopy(loaded.model).to(parameters.device)
    values = models.unflatten(parameters, models.parameter_shapes(model))
    model.load_state_dict(values, strict=False)
    linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise InputError(
            'challenge.space is "embedding", the input of the last linear layer, but the model has '
            'no linear layer; set challenge.space = "features"'
        )
    last_inputs: list[Tensor] = []
    linear[-1].register_forward_pre_hook(lambda layer, inputs: last_inputs.append(inputs[0]))
    embedded = []
    at_once = max(1, BLOCK_SCALARS // features[:1].size)
    for part in slices(len(features), at_once):
        with one_thread():
            model(torch.tensor(features[part]).to(parameters.device))
        if len(last_inputs) != 1:
            raise InputError(
                'challenge.space is "embedding", but the model uses its last linear layer '
                f'{len(last_inputs)} times for a record; set challenge.space = "features"'
            )
        embedded.append(last_inputs.pop().flatten(1).float().cpu().numpy())
    return np.concatenate(embedded)


def initial_parameters(config: Config, loaded: Federation) -> Tensor:
    """Return theta_0 of trial 0, float32 [P], on the CPU, so that all parties compute the same."""
    return federation.initial_parameters(config, loaded, range(1))[0]


@dataclass(frozen=True)
class Challenge:
    r"""The target, the client that holds it, and the adversary.

    Attributes:
        record: position of x^ in D; None where the target is a client.
        replacement: position of x^' in the pool U \ D; None under add-remove, or without a record.
        label: of a crafted record, which is at position `record`, its original in the pool.
    """

    record: int | None
    replacement: int | None
    client: int
    adversary: int
    measure: str
    distance: float | None
    kind: str = "record"
    label: int | None = None


NOBODY = Challenge(None, None, -1, -1, "none", None)
"""The challenge of a training, which has no adversary and no target."""


def choose(config: Config, progress: Progress | None = None) -> Challenge:
    """Return the challenge: a pair chosen by dissimilarity or configured, and the adversary.

    The adversary is the highest-numbered client that does not hold x^. The result depends only on
    the experiment, and is cached because a large pool takes long.

    Raises InputError if the challenge or adversary does not fit the data. Source: Bernau et al.,
    Eq. 18 and Eq. 20.
    """
    if config.run.job == "training":
        return NOBODY
    return _choose(config, _Reporting(progress))


@dataclass(frozen=True)
class _Reporting:
    progress: Progress | None = field(compare=False)


@lru_cache(maxsize=4)
def _choose(config: Config, reporting: _Reporting) -> Challenge:
    loaded = federation.load(config)
    privacy, threads = config.privacy, device.threads(config.run.threads)
    if privacy.unit == "client":
        return _choose_client(config, loaded, threads, reporting.progress)
    split, given = loaded.split, config.challenge
    replace = privacy.neighbouring is Neighbouring.REPLACE
    if loaded.crafted is not None:
        record, crafted = loaded.crafted.record, given.is_crafted
        client = int(loaded.client_of[record])
        return Challenge(
            record,
            len(split.pool) - 1 if replace and crafted else None,
            client,
            _seat(config.federation, client),
            "crafted",
            None,
            given.kind,
            loaded.crafted.label,
        )
    record, measure = given.record, "given"
    replacement = given.replacement if replace else None
    distance: float | None = None
    if replacement is not None and replacement >= len(split.pool):
        raise InputError(
            f"challenge.replacement is {replacement}, but the pool has records 0 to "
            f"{len(split.pool) - 1}"
        )
    if record < 0:
        measure = given.dissimilarity
        among = np.arange(len(split.members)) if given.client < 0 else loaded.owned_by(given.client)
        ours = compared_features(config, loaded, split.members_records.features[among])
        pool = compared_features(config, loaded, split.pool_records.features) if replace else None
        with _measuring():
            pair = select(
                *(ours, pool, measure, privacy.neighbouring.value),
                columns=columns_of(loaded),
                threads=threads,
                progress=reporting.progress,
            )[0]
        record, replacement, distance = int(among[pair.record]), pair.replacement, pair.distance
    client = int(loaded.client_of[record])
    adversary = _seat(config.federation, client)
    return Challenge(record, replacement, client, adversary, measure, distance)


@contextmanager
def _measuring() -> Iterator[None]:
    """Name the key in what a dissimilarity refuses, such as ssim the records of a table."""
    try:
        yield
    except InputError as error:
        raise InputError(f"challenge.dissimilarity: {error}") from None


def _choose_client(
    config: Config, loaded: Federation, threads: int, progress: Progress | None
) -> Challenge:
    """Return the challenge of a target client. Raises InputError if the pool is too small."""
    given, client = config.challenge, config.challenge.client
    measure = "given"
    distance: float | None = None
    if client < 0:
        ours = compared_features(config, loaded, loaded.split.members_records.features)
        with _measuring():
            distances = rank_clients(
                *(ours, loaded.client_of, given.dissimilarity, progress),
                columns=columns_of(loaded),
                threads=threads,
            )
        client, measure = select_one(distances, "max"), given.dissimilarity
        distance = float(distances[client])
    records, pool = len(loaded.owned_by(client)), len(loaded.split.pool)
    if config.privacy.neighbouring is Neighbouring.REPLACE and pool < records:
        raise InputError(
            f"client {client} has {records} records, but the pool has {pool} to replace them by; "
            'raise data.pool or lower data.records, or set privacy.neighbouring = "add-remove"'
        )
    adversary = _seat(config.federation, client)
    return Challenge(None, None, client, adversary, measure, distance)


def compared_features(
    config: Config, loaded: Federation, features: npt.NDArray[np.float32]
) -> Features:
    """Return the values that distances compare: features [N, *shape], or the model's embedding.

    features: float32 [N, *shape].
    Returns: [N, *shape], or [N, E] for an embedding.
    Raises InputError if the measure needs raw features, or the model has no embedding.
    """
    given = config.challenge
    if given.space == "features":
        raw = given.dissimilarity in OF_RAW_FEATURES
        return loaded.split.dataset.shares(features) if raw else features
    if given.dissimilarity in OF_RAW_FEATURES:
        raise InputError(
            f'challenge.dissimilarity is {given.dissimilarity}, but challenge.space is "embedding"'
            ", which has no pixels, bits or columns; choose euclidean, manhattan or cosine"
        )
    return embed(loaded, features, initial_parameters(config, loaded))


def columns_of(loaded: Federation) -> Columns | None:
    """Return the column of each feature; None where features are not columns."""
    columns = loaded.split.dataset.column_of
    return columns if len(columns) else None


def _seat(federation: FederationConfig, client: int) -> int:
    """Return the adversary: the last client that does not hold, or is, the target."""
    return max(j for j in range(federation.clients) if j != client)


def colluders(federation: FederationConfig, challenge: Challenge) -> frozenset[int]:
    """Return the clients that disclose what they know: others than target and adversary."""
    others = set(range(federation.clients)) - {challenge.client, challenge.adversary}
    return frozenset(sorted(others)[: federation.colluding])


def worlds(seed: int, trials: int) -> Bools:
    """Return the world of every trial: half of them D, in random order; D for a single training.

    Returns: bool [T], True for D, drawn for the whole campaign.
    """
    bits: Bools = generator(seed, StreamRole.WORLD).permutation(np.arange(trials) % 2 == 0)
    return bits
