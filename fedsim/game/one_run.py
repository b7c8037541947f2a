"""Canaries for a one-run audit: drawn before the training, planted in it, scored by its releases.

Which canaries there are is the same in all trials; which of them are in, each trial has its own
coins for, so that every trial is a one-run audit. A canary that is in adds at most C to the sum of
every round, as any record or client may: nobody else's guarantee changes. What it adds is a
function of (configuration, model, coin), as the records are, and the adversary's background
knowledge covers it: beliefs about the challenge stay exact.

Whoever knows `run.seed` knows the coins. An audit needs them to be fair, and scores that were not
made with them; it does not need them to be secret.

A canary that is a record may be looked for in the trained model alone: its score is the loss of the
first model, which is blind to it, less that of the last (`canaries.score = "loss"`).
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adversaries.errors import InputError
from fedsim.common.randomness import Role, generator, key
from fedsim.config.challenge import CanariesConfig
from fedsim.config.objects import GameRules
from fedsim.game.canary import random_texts
from fedsim.game.federation import Federation
from fedsim.learning.training.models import size

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BLOCK = 64
"""Canaries whose directions are drawn from one random stream."""

KEPT = 2**23
"""Directions are kept between rounds up to so many coordinates (64 MiB), else drawn again."""

FORMED = 2**24
"""Coordinates of mislabelled records' gradients that exist at a time (128 MiB)."""

DRAW = 1
"""The round of the seed tree that canaries are drawn in; blocks of directions follow on it.

Round 0 has the coins.
"""


@dataclass(frozen=True)
class Kind:
    """How canaries of one kind are summed and looked for; m of them.

    Attributes:
        total: from rules, federation, models [T, P] and weights [T, m], the sum [T, P] of
            what the canaries add at these models.
        along: from rules, federation, models [T, P] and what was released [T, P], its inner
            products [T, m] with what each canary adds.
        orthogonal: whether canaries add orthogonal vectors, the same in every round.
        records: from rules and federation, the features and labels of m records that canaries are;
            None where they are none.
    """

    total: Callable[[GameRules, Federation | None, Tensor, Tensor], Tensor]
    along: Callable[[GameRules, Federation | None, Tensor, Tensor], Tensor]
    orthogonal: bool = False
    records: Callable[[GameRules, Federation], tuple[Tensor, Tensor]] | None = None


@dataclass(frozen=True)
class Scored:
    """The canaries' scores.

    Attributes:
        trials: int64 [T], their numbers.
        included: bool [T, m], which canaries were in.
        scores: float64 [T, m].
    """

    trials: Ints
    included: Bools
    scores: Floats


def included(canary_count: int, seed: int, trials: range) -> Bools:
    """Return which canaries are in which trial; a function of (seed, trial) alone.

    Returns: bool [T, m].
    """
    coins = np.empty((len(trials), canary_count), dtype=np.bool_)
    for row, trial in zip(coins, trials, strict=True):
        row[:] = generator(seed, Role.ONE_RUN, trial=trial).random(row.size) < 0.5
    return coins


def hosts(rules: GameRules) -> Ints:
    """Return the client that each canary is planted at, int [m]: the configured ones in turn."""
    named = [int(name) for name in rules.canaries.clients.split(",") if name.strip()]
    clients = np.asarray(
        sorted(set(named)) or range(rules.scheme.federation.clients), dtype=np.int64
    )
    return clients[np.arange(rules.canaries.count) % len(clients)]


def planted(
    rules: GameRules,
    federation: Federation,
    clients: Collection[int],
    parameters: Tensor,
    trials: range,
) -> Tensor | None:
    """Return what the canaries of some clients add to a sum.

    Sums of several trials round with their number, in the sixteenth digit.

    parameters: float32 [T, P], the models of the round.
    Returns: float64 [T, P]; None where these clients have no canaries.
    """
    if not rules.canaries.count:
        return None
    there = np.isin(hosts(rules), list(clients))
    if not there.any():
        return None
    weights = torch.from_numpy(
        (included(rules.canaries.count, rules.seed, trials) & there).astype(np.float64)
    )
    kind = KINDS[rules.canaries.kind]
    return kind.total(rules, federation, parameters, weights.to(parameters.device))


def scores(
    rules: GameRules,
    federation: Federation | None,
    parameters: Tensor,
    released: Tensor,
    after: Tensor | None = None,
) -> Tensor:
    """Return how far each canary shows in a round's release, or in the model that it led to.

    The inner product of the release with what the canary adds if it is in. A canary's score is the
    sum over the rounds. With `canaries.known-data` the clipped gradients of all records of D are
    subtracted first: they hide canaries, and know no coin.

    With `canaries.score = "loss"` it is by how much the round lowered a canary's loss. Over all
    rounds that is the loss of the first model, which never saw it, less that of the last.

    federation: its data and model; may be None unless `needs_data`.
    parameters: float32 [T, P], the models that the round began with.
    released: [T, P], the noisy sum.
    after: float32 [T, P], the models that the round ended with; for losses alone.
    Returns: float64 [T, m].
    """
    if rules.canaries.score == "loss":
        assert after is not None
        records = _records(rules, federation)
        assert federation is not None
        return (
            federation.evaluate(parameters, *records)[0] - federation.evaluate(after, *records)[0]
        )
    released = released.double()
    if rules.canaries.known_data:
        assert federation is not None
        everybody = np.arange(len(federation.client_of))
        released = released - federation.clipped_sum(parameters, everybody)
    kind = KINDS[rules.canaries.kind]
    return kind.along(rules, federation, parameters, released)


def needs_data(canaries: CanariesConfig) -> bool:
    """Return whether scores are made with records, and not only with what was released."""
    return canaries.known_data or KINDS[canaries.kind].records is not None


def check(canaries: CanariesConfig, federation: Federation) -> None:
    """Check that the model or the pool has room for the configured canaries.

    Raises InputError if it has not.
    """
    if canaries.kind == "dirac" and canaries.count > size(federation.model):
        raise InputError(
            f"canaries.count is {canaries.count}, but the model has {size(federation.model)} "
            'parameters to plant one along each; lower it, or set canaries.kind = "gradient"'
        )
    if canaries.kind == "mislabelled" and canaries.count > len(federation.split.pool):
        raise InputError(
            f"canaries.count is {canaries.count}, but the pool has {len(federation.split.pool)} "
            "records to label wrongly; lower canaries.count, data.records or data.held-out"
        )


def coordinates(seed: int, canary_count: int, parameters: int) -> tuple[Ints, Floats]:
    """Return the parameter and the sign of each canary of kind "dirac".

    Returns: indices int64 [m] and signs float64 [m], 1 or -1.
    """
    stream = generator(seed, Role.ONE_RUN, round=DRAW)
    chosen = stream.permutation(parameters)[:canary_count]
    return chosen, stream.choice([-1.0, 1.0], len(chosen))


def directions(canary_count: int, seed: int, parameters: int) -> Iterator[tuple[slice, Floats]]:
    """Yield the unit directions of canaries of kind "gradient", in blocks.

    Uniform on the sphere, and so nearly orthogonal to one another and to everything else.

    Yields: which of the m canaries, and their directions, float64 [b, P].
    """
    if canary_count * parameters <= KEPT:
        yield slice(0, canary_count), _kept(seed, canary_count, parameters)
        return
    yield from _directions(seed, canary_count, parameters)


def mislabelled(seed: int, canary_count: int, federation: Federation) -> tuple[Ints, Ints]:
    """Return the records and the wrong labels of canaries of kind "mislabelled".

    Returns: positions in the pool and labels, int64 [m] both.
    """
    split = federation.split
    stream = generator(seed, Role.ONE_RUN, round=DRAW)
    positions = stream.permutation(len(split.pool))[:canary_count]
    classes = split.dataset.classes
    right = split.pool_records.labels[positions]
    return positions, (right + stream.integers(1, classes, len(positions))) % classes


def texts(seed: int, canary_count: int, federation: Federation) -> Tensor:
    """Return canaries of kind "text", as of `random_texts`: float32 [m, length]."""
    words: Any = federation.model.config
    length = federation.split.dataset.train.features.shape[1]
    stream = generator(seed, Role.ONE_RUN, round=DRAW)
    return random_texts(stream, canary_count, words.vocab_size, words.pad_token_id, length)


def described(canaries: CanariesConfig, seed: int, federation: Federation) -> dict[str, Any]:
    """Return what makes the canaries of a configuration, as JSON values.

    dirac: parameters and signs; mislabelled: positions in the pool, and labels; text: the tokens of
    each; gradient: the keys
    of the Philox generators whose standard normals, `block` rows each but the last, are the
    directions once they are scaled to length 1.
    """
    parameters = size(federation.model)
    match canaries.kind:
        case "dirac":
            chosen, signs = coordinates(seed, canaries.count, parameters)
            return {"coordinates": chosen.tolist(), "signs": signs.tolist()}
        case "mislabelled":
            positions, labels = mislabelled(seed, canaries.count, federation)
            return {"positions": positions.tolist(), "labels": labels.tolist()}
        case "text":
            found = texts(seed, canaries.count, federation)
            return {"tokens": found.long().tolist()}
    blocks = range(-(-canaries.count // BLOCK))
    keys = [f"{key(seed, Role.ONE_RUN, round=DRAW + block):032x}" for block in blocks]
    return {"parameters": parameters, "block": BLOCK, "keys": keys}


def _directions(seed: int, count: int, parameters: int) -> Iterator[tuple[slice, Floats]]:
    for block, first in enumerate(range(0, count, BLOCK)):
        place = slice(first, min(first + BLOCK, count))
        stream = generator(seed, Role.ONE_RUN, round=DRAW + block)
        drawn = stream.standard_normal((place.stop - place.start, parameters))
        yield place, drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


@lru_cache(maxsize=1)
def _kept(seed: int, count: int, parameters: int) -> Floats:
    """Return all directions [m, P]; those of one configuration at a time."""
    return np.concatenate([block for _, block in _directions(seed, count, parameters)])


def _total_gradient(
    rules: GameRules, federation: Federation | None, parameters: Tensor, weights: Tensor
) -> Tensor:
    total = torch.zeros(parameters.shape, dtype=torch.float64, device=parameters.device)
    for place, block in directions(rules.canaries.count, rules.seed, parameters.shape[1]):
        total += weights[:, place] @ torch.from_numpy(block).to(total)
    return rules.scheme.training.clipping_norm * total


def _along_gradient(
    rules: GameRules, federation: Federation | None, parameters: Tensor, released: Tensor
) -> Tensor:
    blocks = directions(rules.canaries.count, rules.seed, parameters.shape[1])
    found = [released @ torch.from_numpy(block).to(released).T for _, block in blocks]
    return rules.scheme.training.clipping_norm * torch.cat(found, dim=1)


def _total_dirac(
    rules: GameRules, federation: Federation | None, parameters: Tensor, weights: Tensor
) -> Tensor:
    chosen, signs = coordinates(rules.seed, rules.canaries.count, parameters.shape[1])
    total = torch.zeros(parameters.shape, dtype=torch.float64, device=parameters.device)
    # Each parameter has one canary at most, so that nothing is added up.
    total[:, torch.from_numpy(chosen)] = weights * torch.from_numpy(signs).to(weights)
    return rules.scheme.training.clipping_norm * total


def _along_dirac(
    rules: GameRules, federation: Federation | None, parameters: Tensor, released: Tensor
) -> Tensor:
    chosen, signs = coordinates(rules.seed, rules.canaries.count, parameters.shape[1])
    along = released[:, torch.from_numpy(chosen)] * torch.from_numpy(signs).to(released)
    return rules.scheme.training.clipping_norm * along


def _wrong_records(rules: GameRules, federation: Federation) -> tuple[Tensor, Tensor]:
    positions, labels = mislabelled(rules.seed, rules.canaries.count, federation)
    features, right = federation.pool(positions.tolist())
    return features, torch.from_numpy(labels).to(right)


def _texts(rules: GameRules, federation: Federation) -> tuple[Tensor, Tensor]:
    found = texts(rules.seed, rules.canaries.count, federation).to(federation.device)
    return found, torch.zeros(len(found), dtype=torch.int64, device=found.device)


def _records(rules: GameRules, federation: Federation | None) -> tuple[Tensor, Tensor]:
    of = KINDS[rules.canaries.kind].records
    assert federation is not None
    assert of is not None
    return of(rules, federation)


def _total_of_records(
    rules: GameRules, federation: Federation | None, parameters: Tensor, weights: Tensor
) -> Tensor:
    assert federation is not None
    features, labels = _records(rules, federation)
    return federation.clipper.clipped_sum(parameters, features, labels, weights.to(parameters))


def _along_records(
    rules: GameRules, federation: Federation | None, parameters: Tensor, released: Tensor
) -> Tensor:
    assert federation is not None
    features, labels = _records(rules, federation)
    at_once = max(1, FORMED // parameters.numel())
    found = [
        torch.einsum(
            "tnp,tp->tn", federation.clipper.clipped_gradients(parameters, *part), released
        )
        for part in zip(features.split(at_once), labels.split(at_once), strict=True)
    ]
    return torch.cat(found, dim=1)


KINDS: dict[str, Kind] = {
    "gradient": Kind(_total_gradient, _along_gradient),
    "dirac": Kind(_total_dirac, _along_dirac, orthogonal=True),
    "mislabelled": Kind(_total_of_records, _along_records, records=_wrong_records),
    "text": Kind(_total_of_records, _along_records, records=_texts),
}
"""The kinds of `canaries.kind`."""
