"""Dataset sensitivity: the neighbouring dataset that differs most, found without gradients.

Dissimilar records are taken to have dissimilar gradients, so that the most dissimilar pair comes
near the largest local sensitivity. Source: Bernau et al., Definition 6, Eq. 18 and Eq. 20.

Distances are computed in tiles of records and candidates, which threads share, and are not kept: a
search through n p pairs takes the memory of a few tiles. A measure may have a faster variant that
is off by a bounded error; then all pairs that it does not rule out are measured again.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from adversaries.neighbours import dissimilarity
from adversaries.neighbours.dissimilarity import Columns, Distances, Features

Progress = Callable[[float], None]
"""Called with the fraction of the pairs that are done."""

BLOCK_PAIRS = 2**18
"""Pairs of a tile, 2 MiB of distances, and about those between two reports of progress."""

KEPT_PAIRS = 2**25
"""Pairs up to which the distances are kept for a median (256 MiB) instead of computed again."""

DIGITS = 40
"""Bits to which distances are compared, and behind the point at most: 12 decimal digits. The order
of summation differs between machines; without rounding it would break the ties."""


@dataclass(frozen=True)
class Pair:
    """A record of D and what the neighbouring dataset has in its stead.

    Attributes:
        record: position in D.
        replacement: position in the pool; None if the record is removed.
        distance: between the two, or if removed the sum over all others in D.
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
) -> npt.NDArray[np.float64]:
    """Return sum_{x2 in D without x} d(x, x2) for each record x of D, [n].

    Args:
        features: [n, *shape].
        measure: the dissimilarity's name.
        progress: called with the fraction that is done.
        columns: as `dissimilarity.measure` takes them.
        threads: how many share the work.

    Raises:
        InputError: the measure is unknown or not for such records.

    Source:
        Eq. 18.
    """
    distance = dissimilarity.measure(measure, columns)
    sums, positions = np.zeros(len(features)), np.arange(len(features))
    for tile in _tiles(distance, features, features, threads, progress):
        tile.distances[positions[tile.rows, None] == positions[tile.columns]] = 0
        sums[tile.rows] += tile.distances.sum(axis=1)
    return sums


def rank_clients(
    features: Features,
    client_of: npt.NDArray[np.integer[Any]],
    measure: str,
    progress: Progress | None = None,
    *,
    columns: Columns | None = None,
    threads: int = 1,
) -> npt.NDArray[np.float64]:
    """Return how far each client's records lie from those of all other clients, [m].

    The mean of d(x, x2) over its records x and the others' records x2: a mean where Eq. 18 has a
    sum, because clients hold different numbers of records.

    Args:
        features: [n, *shape].
        client_of: int [n], in 0..m-1, of m >= 2 clients with a record each.
        measure: the dissimilarity's name.
        progress: called with the fraction that is done.
        columns: as `dissimilarity.measure` takes them.
        threads: how many share the work.

    Raises:
        InputError: the measure is unknown or not for such records.

    Source:
        Eq. 18 for whole clients.
    """
    distance = dissimilarity.measure(measure, columns)
    holds = client_of[:, None] == np.arange(client_of.max() + 1)
    sums = np.zeros((holds.shape[1], holds.shape[1]))
    for tile in _tiles(distance, features, features, threads, progress):
        sums += holds[tile.rows].T @ (tile.distances @ holds[tile.columns])
    np.fill_diagonal(sums, 0)
    sizes = holds.sum(axis=0)
    means: npt.NDArray[np.float64] = sums.sum(axis=1) / (sizes * (len(features) - sizes))
    return means


def select_one(values: npt.NDArray[np.float64], choice: str) -> int:
    """Return the position of the chosen value, the lowest among equals.

    Args:
        values: float64 [n].
        choice: "max", "min" or "median".

    Raises:
        InputError: another choice; no values.
    """
    _refuse_impossible(choice, 1, len(values))
    return _chosen_of(values, choice, 1)[0]


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

    Exact, in one search through all pairs; the median of more than KEPT_PAIRS takes four. Memory is
    that of `threads` tiles, whatever n and p; a median of fewer keeps 8 bytes a pair.

    Args:
        features: [n, *shape], of D.
        pool_features: [p, *shape], of U without D, needed by replace only.
        measure: the dissimilarity's name.
        neighbouring: "add-remove" or "replace".
        choice: "min" returns the pairs that differ least, "median" those nearest to the median
            distance. Of equal distances, up to rounding, the lowest positions win.
        top: how many pairs, at least 1.
        columns: as `dissimilarity.measure` takes them.
        threads: how many share the work.
        progress: called with the fraction that is done.

    Raises:
        InputError: as of `check`; the measure is unknown or not for such records.
    """
    candidates = 0 if pool_features is None else len(pool_features)
    check(neighbouring, choice, top, len(features), candidates)
    if neighbouring == "add-remove":
        sums = rank_records(features, measure, progress, columns=columns, threads=threads)
        return [Pair(i, None, float(sums[i]), measure) for i in _chosen_of(sums, choice, top)]
    assert pool_features is not None
    pool = pool_features
    width, count = len(pool), len(features) * len(pool)
    distance = dissimilarity.measure(measure, columns)
    rough = dissimilarity.COARSE.get(measure)
    if choice == "median" or not _within_0_and_1(features, pool):
        rough = None
    searches = PASSES + 1 if choice == "median" and count > KEPT_PAIRS else 1
    turns = iter(range(searches))
    kept: list[Tile] = []

    def tiles() -> Iterable[Tile]:
        if kept:
            return kept
        part = None if progress is None else _part_of(progress, next(turns), searches)
        return _tiles(distance if rough is None else rough[0], features, pool, threads, part)

    if choice == "median" and searches == 1:
        kept = list(tiles())
    cost = _cost(choice, tiles, count)
    again = None
    if rough is not None:
        again = (lambda found: _exactly(distance, features, pool, found)), rough[1]
    positions, distances = _smallest(tiles(), cost, width, top, again)
    return [
        Pair(int(position) // width, int(position) % width, float(distance), measure)
        for position, distance in zip(positions, distances, strict=True)
    ]


def check(neighbouring: str, choice: str, top: int, records: int, candidates: int) -> None:
    """Raise an error for what `select` could not choose, whatever the features are.

    Args:
        neighbouring: "add-remove" or "replace".
        choice: "max", "min" or "median".
        top: how many pairs are wanted.
        records: how many D has.
        candidates: how many the pool has.

    Raises:
        InputError: an unknown word, an empty pool, or more pairs than there are.
    """
    if neighbouring == "add-remove":
        _refuse_impossible(choice, top, records)
        return
    if neighbouring != "replace":
        raise InputError(f"neighbouring is '{neighbouring}'; give add-remove or replace")
    if not candidates:
        raise InputError(
            "no record is left in the pool to replace one of D by; lower data.records or "
            'data.held-out, or set privacy.neighbouring = "add-remove"'
        )
    _refuse_impossible(choice, top, records * candidates)


def select_per_client(
    features: Features,
    client_of: npt.NDArray[np.integer[Any]],
    pool_features: Features | None,
    measure: str,
    neighbouring: str,
    *,
    choice: str = "max",
    columns: Columns | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> list[Pair]:
    """Return the best pair of each client, chosen from its own records alone, [m].

    D in Eq. 18 and Eq. 20 is what the client holds, so that it can choose without the others. A
    pair's record is a position in `features` all the same.

    Args:
        features: [n, *shape], of all clients' records.
        client_of: int [n], in 0..m-1, of clients with a record each.
        pool_features: [p, *shape], as of `select`.
        measure: the dissimilarity's name.
        neighbouring: "add-remove" or "replace".
        choice: "max", "min" or "median".
        columns: as `dissimilarity.measure` takes them.
        threads: how many share the work.
        progress: called with the fraction that is done.

    Raises:
        InputError: as of `select`.
    """
    pairs, clients = [], int(client_of.max()) + 1
    for client in range(clients):
        own = np.flatnonzero(client_of == client)
        part = None if progress is None else _part_of(progress, client, clients)
        [pair] = select(
            features[own],
            pool_features,
            measure,
            neighbouring,
            choice=choice,
            columns=columns,
            threads=threads,
            progress=part,
        )
        pairs.append(replace(pair, record=int(own[pair.record])))
    return pairs


def _part_of(progress: Progress, part: int, parts: int) -> Progress:
    """Return what reports the progress of one of several equal parts of a search."""
    return lambda fraction: progress((part + fraction) / parts)


def _refuse_impossible(choice: str, top: int, pairs: int) -> None:
    """Raise InputError for a choice that cannot be made, before a long search rather than after."""
    if choice not in CHOICES:
        raise InputError(f"challenge.choice is '{choice}'; give one of {', '.join(CHOICES)}")
    if not 1 <= top <= pairs:
        raise InputError(f"top is {top}, but there are {pairs} pairs; give 1 to {pairs}")


CHOICES = ("max", "min", "median")


@dataclass(frozen=True, eq=False)
class Tile:
    """Distances of some records of D and some candidates.

    Attributes:
        rows: the records' positions in D.
        columns: the candidates' positions.
        distances: float64 [rows, columns].
    """

    rows: slice
    columns: slice
    distances: Distances


def _tiles(
    distance: Callable[[Features, Features], Distances],
    a: Features,
    b: Features,
    threads: int,
    progress: Progress | None,
) -> Iterator[Tile]:
    """Yield the distances of all pairs in tiles, in the same order whatever the threads."""
    rows = min(len(a), isqrt(BLOCK_PAIRS))
    columns = min(len(b), BLOCK_PAIRS // rows)
    places = [
        (slice(i, min(i + rows, len(a))), slice(j, min(j + columns, len(b))))
        for i in range(0, len(a), rows)
        for j in range(0, len(b), columns)
    ]
    done = 0
    with ThreadPoolExecutor(threads, thread_name_prefix="dissimilarity") as executor:
        # As many at once as there are threads: more would have to be kept.
        for start in range(0, len(places), threads):
            group = places[start : start + threads]
            found = executor.map(lambda place: distance(a[place[0]], b[place[1]]), group)
            for place, distances in zip(group, found, strict=True):
                yield Tile(*place, distances)
                done += distances.size
                if progress is not None:
                    progress(done / (len(a) * len(b)))


def _within_0_and_1(*features: Features) -> bool:
    return all(each.min() >= 0 and each.max() <= 1 for each in features)


def _exactly(
    distance: Callable[[Features, Features], Distances],
    a: Features,
    b: Features,
    positions: npt.NDArray[np.int64],
) -> npt.NDArray[np.float64]:
    """Return the distances of the pairs at `positions`, row * len(b) + column."""
    rows, columns = np.divmod(positions, len(b))
    distances = np.empty(len(positions))
    for row in np.unique(rows):
        here = rows == row
        distances[here] = distance(a[row : row + 1], b[columns[here]])[0]
    return distances


Cost = Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]
"""What a choice makes small, of distances."""


def _cost(choice: str, tiles: Callable[[], Iterable[Tile]], count: int) -> Cost:
    if choice == "max":
        return np.negative
    if choice == "min":
        return np.positive
    median = _median(tiles, count)
    return lambda distances: np.abs(distances - median)


def _chosen_of(values: npt.NDArray[np.float64], choice: str, top: int) -> list[int]:
    """Return the positions of the chosen ones of a few values, best first."""
    one = Tile(slice(0, 1), slice(0, len(values)), values[None])
    cost = _cost(choice, lambda: [one], len(values))
    positions, _ = _smallest([one], cost, len(values), top)
    return [int(position) for position in positions]


def _rounded(distances: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the distances to DIGITS bits, and as many behind the point if they are below 1."""
    _, exponent = np.frexp(distances)
    quantum = np.maximum(exponent, 1) - 1 - DIGITS
    rounded: npt.NDArray[np.float64] = np.ldexp(np.round(np.ldexp(distances, -quantum)), quantum)
    return rounded


Exactly = Callable[[npt.NDArray[np.int64]], npt.NDArray[np.float64]]
"""Positions of pairs -> their distances."""


def _smallest(
    tiles: Iterable[Tile],
    cost: Cost,
    width: int,
    top: int,
    again: tuple[Exactly, float] | None = None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return positions [top] of the pairs of smallest cost, row * width + column, and distances.

    In the order of cost and position. Rounded costs and positions are a total order, so that the
    best of all are found by merging the best so far with those of the next tile. again: where the
    tiles' costs may be off, exact distances and by how much.
    """
    costs, distances = np.empty(0), np.empty(0)
    positions = np.empty(0, dtype=np.int64)
    error = 0.0 if again is None else again[1]
    for tile in tiles:
        values = tile.distances.ravel()
        rough = cost(values)
        # Rounding moves a distance by half of the last bit, and so its cost.
        slack = error + max(1.0, float(np.abs(values).max())) * 2.0**-DIGITS
        # Only what may still be among the best is measured exactly and merged.
        limit = np.inf
        if len(costs) == top:
            limit = costs[-1] + slack
        elif len(rough) >= top:  # then so many do not cost more than
            limit = np.partition(rough, top - 1)[top - 1] + 2 * slack
        candidates = np.flatnonzero(rough <= limit)
        row, column = np.divmod(candidates, tile.distances.shape[1])
        new_positions = (tile.rows.start + row) * width + tile.columns.start + column
        values = values[candidates] if again is None else again[0](new_positions)
        new = cost(_rounded(values))
        if len(costs) == top:
            better = (new < costs[-1]) | ((new == costs[-1]) & (new_positions < positions[-1]))
            new, new_positions, values = new[better], new_positions[better], values[better]
        # The best so far, by cost and then position.
        costs, distances = np.append(costs, new), np.append(distances, values)
        positions = np.append(positions, new_positions)
        order = np.lexsort((positions, costs))[:top]
        costs, distances, positions = costs[order], distances[order], positions[order]
    return positions, distances


RADIX, PASSES = 18, 3
"""Bits of a key that one pass through the distances decides; passes for all 52."""


def _median(tiles: Callable[[], Iterable[Tile]], count: int) -> float:
    """Return the median of all distances, rounded, from a histogram in each pass through them.

    Keys are whole numbers in the order of the rounded distances. A pass counts the next digit of
    those keys that begin as the median's does (radix selection), which takes 2 MiB.
    """
    ranks = [(count - 1) // 2, count // 2]
    prefixes = [0, 0]
    for shift in range(RADIX * (PASSES - 1), -1, -RADIX):
        counts = {prefix: np.zeros(2**RADIX, dtype=np.int64) for prefix in prefixes}
        for tile in tiles():
            keys = _keys(tile.distances.ravel())
            for prefix in counts:
                digits = (keys[keys >> (shift + RADIX) == prefix] >> shift) % 2**RADIX
                counts[prefix] += np.bincount(digits, minlength=2**RADIX)
        for which, prefix in enumerate(prefixes):
            upto = counts[prefix].cumsum()
            digit = int(np.searchsorted(upto, ranks[which], side="right"))
            ranks[which] -= int(upto[digit - 1]) if digit else 0
            prefixes[which] = (prefix << RADIX) + digit
    lower, upper = _of_keys(np.array(prefixes))
    return float((lower + upper) / 2)


UNUSED = 12
"""Bits of a float64's 53 that are 0 in a rounded distance."""


def _keys(distances: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return whole numbers below 2**52 in the order of the rounded distances, which are not < 0."""
    # The bits of a float64 that is not negative, read as a whole number, are in its order.
    return np.abs(_rounded(distances)).view(np.int64) >> UNUSED


def _of_keys(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the rounded distances of keys."""
    return (keys << UNUSED).view(np.float64)
