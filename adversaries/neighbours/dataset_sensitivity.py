"""Dataset sensitivity: the neighbouring dataset that differs most, chosen without gradients.

Dissimilar records are assumed to have dissimilar gradients (Bernau et al., Definition 6, Eq. 18 and
Eq. 20). Distances are computed in tiles, by several threads, and are not kept.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Floats
from adversaries.errors import InputError
from adversaries.neighbours import dissimilarity
from adversaries.neighbours.dissimilarity import Columns, Features
from adversaries.neighbours.search import CHOICES, Progress, best, chosen, distance_tiles


@dataclass(frozen=True)
class Pair:
    """A record of D and its counterpart in the neighbouring dataset.

    Attributes:
        record: position in D.
        replacement: position in the pool; None if the record is removed.
        distance: between the two; for a removed record the sum over all others in D.
        measure: the dissimilarity's name.
    """

    record: int
    replacement: int | None
    distance: float
    measure: str


def rank_records(
    features: Features,
    measure: str,
    progress: Progress | None = None,
    *,
    columns: Columns | None = None,
    threads: int = 1,
) -> Floats:
    """Return sum_{x2 in D without x} d(x, x2) for each record x of D, [n].

    Args:
        features: [n, *shape].
        measure: the dissimilarity's name.
        progress: called with the finished fraction.
        columns: int [features], for `dissimilarity.measure`.
        threads: number of threads.

    Raises InputError for an unsuitable or unknown measure. Source: Eq. 18.
    """
    alone = np.arange(len(features))
    return _sums_to_others(features, alone, measure, progress, columns, threads)


def rank_clients(
    features: Features,
    client_of: npt.NDArray[np.integer[Any]],
    measure: str,
    progress: Progress | None = None,
    *,
    columns: Columns | None = None,
    threads: int = 1,
) -> Floats:
    """Return the mean distance of each client's records from all other clients' records, [m].

    Args:
        features: [n, *shape].
        client_of: int [n], in 0..m-1, of m >= 2 clients with a record each.
        measure: the dissimilarity's name.
        progress: called with the finished fraction.
        columns: int [features], for `dissimilarity.measure`.
        threads: number of threads.

    Raises InputError for an unsuitable or unknown measure. Source: Eq. 18 for whole clients.
    """
    to_others = _sums_to_others(features, client_of, measure, progress, columns, threads)
    sums, sizes = np.bincount(client_of, to_others), np.bincount(client_of)
    # A client's records have size * (n - size) pairs with the records of all others.
    return sums / (sizes * (len(features) - sizes))


def _sums_to_others(
    features: Features,
    client_of: npt.NDArray[np.integer[Any]],
    measure: str,
    progress: Progress | None,
    columns: Columns | None,
    threads: int,
) -> Floats:
    """Return the sum of each record's distances to the records of all other clients, [n]."""
    distance, sums = dissimilarity.measure(measure, columns), np.zeros(len(features))
    for tile in distance_tiles(distance, features, features, threads, progress):
        # Pairs within a client do not count. This also removes rounding in a record's own distance.
        tile.distances[client_of[tile.rows, None] == client_of[tile.columns]] = 0
        sums[tile.rows] += tile.distances.sum(axis=1)
    return sums


def select_one(values: Floats, choice: str) -> int:
    """Return the position of the chosen value, the lowest among equals.

    Args:
        values: float64 [n].
        choice: "max" or "min".

    Raises InputError for an unknown choice, or for no values.
    """
    _refuse_impossible(choice, 1, len(values))
    return chosen(values, choice, 1)[0]


def select(
    features: Features,
    pool_features: Features | None,
    measure: str,
    neighbouring: str,
    *,
    choice: str = "max",
    top: int = 1,
    columns: Columns | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> list[Pair]:
    """Return the `top` pairs that make the neighbouring dataset differ most, best first.

        add-remove: argmax over x in D of the sum of its distances to the others (Eq. 18)
        replace: argmax over x in D and x' in the pool of d(x, x') (Eq. 20)

    The result is exact, in one search through all pairs. The memory is that of `threads` tiles.

    Args:
        features: [n, *shape], of D.
        pool_features: [p, *shape], of U without D, needed for replace only.
        measure: the dissimilarity's name.
        neighbouring: "add-remove" or "replace".
        choice: "max" returns the pairs that differ most, "min" the least. Of equal distances, up to
            rounding, the lowest positions win.
        top: number of pairs, at least 1.
        columns: int [features], for `dissimilarity.measure`.
        threads: number of threads.
        progress: called with the finished fraction.

    Raises InputError for a choice that `check_choice` refuses, or an unsuitable measure.
    """
    candidates = 0 if pool_features is None else len(pool_features)
    check_choice(neighbouring, choice, top, len(features), candidates)
    if neighbouring == "add-remove":
        sums = rank_records(features, measure, progress, columns=columns, threads=threads)
        return [Pair(i, None, float(sums[i]), measure) for i in chosen(sums, choice, top)]
    assert pool_features is not None
    width, distance = len(pool_features), dissimilarity.measure(measure, columns)
    tiles = distance_tiles(distance, features, pool_features, threads, progress)
    positions, distances = best(tiles, choice, width, top)
    return [
        Pair(int(position) // width, int(position) % width, float(distance), measure)
        for position, distance in zip(positions, distances, strict=True)
    ]


def check_choice(neighbouring: str, choice: str, top: int, records: int, candidates: int) -> None:
    """Raise InputError for a choice that `select` cannot make with any features.

    Args:
        neighbouring: "add-remove" or "replace".
        choice: "max" or "min".
        top: wanted number of pairs.
        records: number of records of D.
        candidates: number of records of the pool.

    Raises InputError for an unknown word, an empty pool, or more pairs than exist.
    """
    if neighbouring == "add-remove":
        _refuse_impossible(choice, top, records)
        return
    if neighbouring != "replace":
        raise InputError(f"neighbouring is '{neighbouring}'; give add-remove or replace")
    if not candidates:
        raise InputError(
            "the pool has no record left to replace a record of D; lower data.records or "
            'data.held-out, or set privacy.neighbouring = "add-remove"'
        )
    _refuse_impossible(choice, top, records * candidates)


def _refuse_impossible(choice: str, top: int, pairs: int) -> None:
    """Raise InputError for an impossible choice before a long search begins."""
    if choice not in CHOICES:
        raise InputError(f"choice is '{choice}'; give one of {', '.join(CHOICES)}")
    if not 1 <= top <= pairs:
        raise InputError(f"top is {top}, but only {pairs} pairs exist; give 1 to {pairs}")
