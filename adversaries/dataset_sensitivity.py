"""Dataset sensitivity: the neighbouring dataset that differs most, found without gradients.

Dissimilar records are taken to have dissimilar gradients, so that the most dissimilar pair comes
near the largest local sensitivity. Source: Bernau et al., Definition 6, Eq. 18 and Eq. 20.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries import dissimilarity
from adversaries.dissimilarity import Distances, Features
from fedsim.errors import InputError

Progress = Callable[[float], None]
"""Called with the fraction of the pairs that are done."""

BLOCK_PAIRS = 2**18
"""Pairs between two reports of progress."""


@dataclass(frozen=True)
class Pair:
    """A record of D and what the neighbouring dataset has in its stead.

    record: position in D; replacement: position in the pool, None if the record is removed;
    distance: between the two, or if removed the sum over all others in D.
    """

    record: int
    replacement: int | None
    distance: float
    measure: str


def rank_records(
    features: Features, measure: str, progress: Progress | None = None
) -> npt.NDArray[np.float64]:
    """Return sum_{x2 in D without x} d(x, x2) for each record x of D, [n] (Eq. 18).

    features [n, *shape]. Raises InputError if the measure is unknown or not for such records.
    """
    distance = dissimilarity.measure(measure)
    sums = np.empty(len(features))
    for rows in _blocks(len(features), len(features), progress):
        distances = distance(features[rows], features)
        np.fill_diagonal(distances[:, rows], 0)
        sums[rows] = distances.sum(axis=1)
    return sums


def rank_owners(
    features: Features,
    owner_of: npt.NDArray[np.integer[Any]],
    measure: str,
    progress: Progress | None = None,
) -> npt.NDArray[np.float64]:
    """Return how far each owner's records lie from those of all other owners, [m].

    The mean of d(x, x2) over its records x and the others' records x2: Eq. 18 for whole owners, and
    a mean where that is a sum, because owners hold different numbers of records.

    features [n, *shape]; owner_of [n] in 0..m-1, of m >= 2 owners with a record each. Raises
    InputError if the measure is unknown or not for such records.
    """
    distance = dissimilarity.measure(measure)
    holds = owner_of[:, None] == np.arange(owner_of.max() + 1)
    sums = np.zeros((holds.shape[1], holds.shape[1]))
    for rows in _blocks(len(features), len(features), progress):
        sums += holds[rows].T @ (distance(features[rows], features) @ holds)
    np.fill_diagonal(sums, 0)
    sizes = holds.sum(axis=0)
    means: npt.NDArray[np.float64] = sums.sum(axis=1) / (sizes * (len(features) - sizes))
    return means


def select_one(values: npt.NDArray[np.float64], choice: str) -> int:
    """Return the position of the chosen value, the lowest among equals. Raises InputError."""
    _refuse_impossible(choice, 1, len(values))
    return int(_choose(values, choice, 1)[0])


def select(
    features: Features,
    pool_features: Features | None,
    measure: str,
    neighbouring: str,
    *,
    choice: str = "max",
    top: int = 1,
    progress: Progress | None = None,
) -> list[Pair]:
    """Return the `top` pairs that make the neighbouring dataset differ most, best first.

    add-remove: argmax over x in D of the sum of its distances to the others (Eq. 18).
    replace: argmax over x in D and x' in the pool of d(x, x') (Eq. 20).

    features [n, *shape] are D's; pool_features [p, *shape] those of U \\ D, needed by replace only,
    which takes 24 n p bytes. `choice` "min" returns the pairs that differ least, "median" those
    nearest to the median distance. Of equal distances, up to rounding, the lowest positions win.
    Raises InputError.
    """
    if neighbouring == "add-remove":
        _refuse_impossible(choice, top, len(features))
        sums = rank_records(features, measure, progress)
        return [Pair(int(i), None, float(sums[i]), measure) for i in _choose(sums, choice, top)]
    if neighbouring != "replace":
        raise InputError(f"neighbouring is '{neighbouring}'; give add-remove or replace")
    if pool_features is None or not len(pool_features):
        raise InputError(
            "no record is left in the pool to replace one of D by; lower data.records or "
            'data.held-out, or set privacy.neighbouring = "add-remove"'
        )
    _refuse_impossible(choice, top, len(features) * len(pool_features))
    distances = _distances(features, pool_features, measure, progress)
    records, replacements = np.unravel_index(
        _choose(distances.ravel(), choice, top), distances.shape
    )
    return [
        Pair(int(i), int(j), float(distances[i, j]), measure)
        for i, j in zip(records, replacements, strict=True)
    ]


def _distances(
    features: Features, pool_features: Features, measure: str, progress: Progress | None
) -> Distances:
    """Return d(x, x') of all pairs, [n, p]."""
    distance = dissimilarity.measure(measure)
    distances = np.empty((len(features), len(pool_features)))
    for columns in _blocks(len(pool_features), len(features), progress):
        distances[:, columns] = distance(features, pool_features[columns])
    return distances


def _refuse_impossible(choice: str, top: int, pairs: int) -> None:
    """Raise InputError for a choice that cannot be made, before a long search rather than after."""
    if choice not in CHOICES:
        raise InputError(f"challenge.choice is '{choice}'; give one of {', '.join(CHOICES)}")
    if not 1 <= top <= pairs:
        raise InputError(f"top is {top}, but there are {pairs} pairs; give 1 to {pairs}")


def _choose(values: npt.NDArray[np.float64], choice: str, top: int) -> npt.NDArray[np.intp]:
    """Return the positions [top] of the chosen values, best first, the lowest among equals."""
    cost = CHOICES[choice](values)
    # The order of summation differs between machines; without rounding it would break the ties.
    cost /= max(1.0, values.max())
    np.round(cost, 12, out=cost)
    candidates = np.flatnonzero(cost <= np.partition(cost, top - 1)[top - 1])
    return candidates[np.argsort(cost[candidates], kind="stable")[:top]]


CHOICES: dict[str, Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]] = {
    "max": np.negative,
    "min": np.positive,
    "median": lambda values: np.abs(values - np.median(values)),
}
"""What each choice makes small."""


def _blocks(length: int, others: int, progress: Progress | None) -> Iterator[slice]:
    """Yield blocks of 0..length-1 of about BLOCK_PAIRS pairs with `others`, reporting progress."""
    step = max(1, BLOCK_PAIRS // others)
    for start in range(0, length, step):
        stop = min(start + step, length)
        yield slice(start, stop)
        if progress is not None:
            progress(stop / length)
