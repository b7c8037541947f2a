"""The challenge: a pair of neighbouring datasets (D, D'), and the world each trial trains on."""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from adversaries.neighbours.dataset_sensitivity import rank_clients, select, select_one
from adversaries.neighbours.dissimilarity import OF_RAW_FEATURES, Columns, Features
from adversaries.neighbours.search import Progress
from fedsim.common import device
from fedsim.common.randomness import Role, generator
from fedsim.config import Config
from fedsim.config.federation import FederationConfig
from fedsim.config.objects import GameRules
from fedsim.game import federation
from fedsim.game.embedding import embed, initial_parameters
from fedsim.game.federation import Federation
from fedsim.privacy.mechanism import Neighbouring


@dataclass(frozen=True)
class Challenge:
    r"""Who must be identified, who holds them, and who tries.

    Attributes:
        record: position of x^ in D; None where the target is a client.
        replacement: position of x^' in the pool U \ D; None under add-remove and without a record.
        client: the target client: it holds the record, or is the target itself.
        adversary: the partition of the curious participant.
        measure: how the pair was chosen: a dissimilarity, "given" or "crafted".
        distance: of the pair by that measure, None where none was computed.
        kind: "record", or what was crafted to stand in its place.
        copies: how often D has the challenge.
        label: of a crafted record, which stands at the position `record` and whose original is then
            the replacement; None where no record was crafted.
    """

    record: int | None
    replacement: int | None
    client: int
    adversary: int
    measure: str
    distance: float | None
    kind: str = "record"
    copies: int = 1
    label: int | None = None


NOBODY = Challenge(None, None, -1, -1, "none", None)
"""The challenge of a training, in which nobody attacks and no client is the target."""


def choose(config: Config, progress: Progress | None = None) -> Challenge:
    """Return the pair, chosen by dissimilarity or as given, and who attacks.

    Where challenge.client is given, its own records alone are compared. Where the unit of privacy
    is a client, it is the one whose records lie farthest from those of the others. The adversary is
    the configured client, or else the highest-numbered one that does not hold x^: its own records
    are no secret to it. A pure function of the configuration, cached because a search through a
    large pool takes its time.

    Raises InputError if the configured challenge or adversary does not fit the data.
    Source: Bernau et al., Eq. 18 and Eq. 20.
    """
    if config.run.job == "training":
        return NOBODY
    return _choose(config, _Reporting(progress))


@dataclass(frozen=True)
class _Reporting:
    """Where progress is reported; no part of what is chosen, nor of the key of a cache."""

    progress: Progress | None = field(compare=False)


@lru_cache(maxsize=4)
def _choose(config: Config, reporting: _Reporting) -> Challenge:
    known = federation.load(config)
    if config.privacy.unit == "client":
        return _choose_client(config, known, reporting.progress)
    split, given = known.split, config.challenge
    replace = config.privacy.neighbouring is Neighbouring.REPLACE
    if known.crafted is not None:
        record, crafted = known.crafted.record, given.is_crafted
        client = int(known.client_of[record])
        return Challenge(
            record,
            len(split.pool) - 1 if replace and crafted else None,
            client,
            _seat(config.federation, config.privacy.unit, client),
            "crafted",
            None,
            given.kind,
            given.copies,
            known.crafted.label,
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
        among = np.arange(len(split.members)) if given.client < 0 else known.owned_by(given.client)
        pair = select(
            compared_features(config.game, known, split.members_records.features[among]),
            compared_features(config.game, known, split.pool_records.features) if replace else None,
            measure,
            config.privacy.neighbouring.value,
            choice=given.choice,
            columns=columns_of(known),
            threads=device.threads(config.run.threads),
            progress=reporting.progress,
        )[0]
        record, replacement, distance = int(among[pair.record]), pair.replacement, pair.distance
    client = int(known.client_of[record])
    adversary = _seat(config.federation, config.privacy.unit, client)
    return Challenge(record, replacement, client, adversary, measure, distance, copies=given.copies)


def _choose_client(config: Config, known: Federation, progress: Progress | None) -> Challenge:
    """Return the challenge whose target is a client. Raises InputError."""
    given, client = config.challenge, config.challenge.client
    measure = "given"
    distance: float | None = None
    if client < 0:
        distances = rank_clients(
            compared_features(config.game, known, known.split.members_records.features),
            known.client_of,
            given.dissimilarity,
            progress,
            columns=columns_of(known),
            threads=device.threads(config.run.threads),
        )
        client, measure = select_one(distances, given.choice), given.dissimilarity
        distance = float(distances[client])
    records, pool = len(known.owned_by(client)), len(known.split.pool)
    if config.privacy.neighbouring is Neighbouring.REPLACE and pool < records:
        raise InputError(
            f"client {client} has {records} records, but the pool has {pool} to replace them by; "
            'raise data.pool or lower data.records, or set privacy.neighbouring = "add-remove"'
        )
    adversary = _seat(config.federation, config.privacy.unit, client)
    return Challenge(None, None, client, adversary, measure, distance)


def compared_features(
    rules: GameRules, known: Federation, features: npt.NDArray[np.float32]
) -> Features:
    """Return what distances are between: the features, or what the model makes of them.

    features: float32 [N, *shape].
    Returns: [N, *shape], or [N, E] of an embedding.
    Raises InputError if the measure is one of raw features, or the model has no embedding.
    """
    given = rules.challenge
    if given.space == "features":
        return features
    if given.dissimilarity in OF_RAW_FEATURES:
        raise InputError(
            f'challenge.dissimilarity is {given.dissimilarity}, but challenge.space is "embedding"'
            ", which has no pixels, bits or columns; choose euclidean, manhattan or cosine"
        )
    return embed(known, features, initial_parameters(rules, known))


def columns_of(known: Federation) -> Columns | None:
    """Return which column each feature comes from; None where features are no columns."""
    columns = known.split.dataset.column_of
    return columns if len(columns) else None


def _seat(federation: FederationConfig, unit: str, client: int) -> int:
    """Return the partition of the adversary, which is not the target client."""
    adversary = federation.adversary
    if adversary == client:
        what = "record" if unit == "record" else "data"
        raise InputError(
            f"federation.adversary is {adversary}, the target client {what}, to whom it "
            "is no secret; name another client, or -1 to let fedsim choose"
        )
    if adversary < 0:
        return max(j for j in range(federation.clients) if j != client)
    return adversary


def colluders(federation: FederationConfig, challenge: Challenge) -> frozenset[int]:
    """Return which clients disclose what they know: `federation.colluding` of them.

    federation: who holds the records, who adds the noise, where the adversary sits.
    challenge: whose client and adversary are none of them; they are the lowest-numbered others.
    """
    others = set(range(federation.clients)) - {challenge.client, challenge.adversary}
    return frozenset(sorted(others)[: federation.colluding])


def worlds(seed: int, trials: int, mode: str, shuffled: int | None = None) -> npt.NDArray[np.bool_]:
    """Return the world bit of every trial: half of them D, shuffled, or all D.

    The bits are drawn for the whole campaign: a trial's world does not depend on its batch of
    trials.

    mode: "d-only" for D in all trials.
    shuffled: an even number of trials, the first of them, that are balanced as a whole; None for
    all. Of the others trials 2i and 2i + 1 are in opposite worlds, in an order that has a coin of
    its own: more trials leave the worlds of those before them as they are.
    Returns: bool [T], True for D.
    """
    if mode == "d-only":
        return np.ones(trials, dtype=np.bool_)
    first = trials if shuffled is None else min(shuffled, trials)
    bits = np.empty(trials, dtype=np.bool_)
    bits[:first] = generator(seed, Role.WORLD).permutation(np.arange(first) % 2 == 0)
    for trial in range(first, trials, 2):
        heads = generator(seed, Role.PAIRED_WORLDS, trial=trial).random() < 0.5
        bits[trial : trial + 2] = [heads, not heads][: trials - trial]
    return bits
