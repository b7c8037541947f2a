"""An exact search through the distances of all pairs, in tiles that are not kept."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import isqrt

import numpy as np

from adversaries.arrays import Floats, Ints
from adversaries.neighbours.dissimilarity import Distances, Features

Progress = Callable[[float], None]
"""Called with the finished fraction of the pairs."""

BLOCK_PAIRS = 2**18
"""Pairs of a tile (2 MiB of distances), and about those between two reports of progress."""

DIGITS = 40
"""Bits to which distances are compared, and at most behind the point: 12 decimal digits. Machines
differ in the order of summation, so without rounding they would break ties differently."""

CHOICES = ("max", "min")


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


def distance_tiles(
    distance: Callable[[Features, Features], Distances],
    a: Features,
    b: Features,
    threads: int,
    progress: Progress | None,
) -> Iterator[Tile]:
    """Yield the distances of all pairs in tiles, in the same order for any number of threads.

    Args:
        distance: of two sets of records, [rows, columns].
        a: [n, *shape], the rows.
        b: [p, *shape], the columns.
        threads: number of threads.
        progress: called with the finished fraction; None for no report.
    """
    rows = min(len(a), isqrt(BLOCK_PAIRS))
    columns = min(len(b), BLOCK_PAIRS // rows)
    places = [
        (slice(i, min(i + rows, len(a))), slice(j, min(j + columns, len(b))))
        for i in range(0, len(a), rows)
        for j in range(0, len(b), columns)
    ]
    done = 0
    with ThreadPoolExecutor(threads, thread_name_prefix="dissimilarity") as executor:
        # Compute only `threads` tiles at once: more would have to be kept in memory.
        for start in range(0, len(places), threads):
            group = places[start : start + threads]
            parts = executor.map(lambda place: distance(a[place[0]], b[place[1]]), group)
            for place, distances in zip(group, parts, strict=True):
                yield Tile(*place, distances)
                done += distances.size
                if progress is not None:
                    progress(done / (len(a) * len(b)))


def chosen(values: Floats, choice: str, top: int) -> list[int]:
    """Return the positions of the chosen among a few values, best first.

    Args:
        values: float64 [n].
        choice: "max" or "min".
        top: number of positions, at most n.
    """
    one = Tile(slice(0, 1), slice(0, len(values)), values[None])
    positions, _ = best([one], choice, len(values), top)
    return [int(position) for position in positions]


def _rounded(distances: Floats) -> Floats:
    """Return the distances to DIGITS bits, and to as many behind the point if they are below 1."""
    # Scaling by powers of two is exact, so only np.round changes the value.
    _, exponent = np.frexp(distances)
    quantum = np.maximum(exponent, 1) - 1 - DIGITS
    return np.ldexp(np.round(np.ldexp(distances, -quantum)), quantum)


def best(tiles: Iterable[Tile], choice: str, width: int, top: int) -> tuple[Ints, Floats]:
    """Return positions [top] of the chosen pairs, row * width + column, and their distances.

    Args:
        tiles: the distances of all pairs.
        choice: "max" for the largest distances, "min" for the smallest.
        width: number of columns.
        top: number of pairs.
    """
    sign = -1.0 if choice == "max" else 1.0  # of the cost, which is small for the chosen
    costs, distances = np.empty(0), np.empty(0)
    positions = np.empty(0, dtype=np.int64)
    for tile in tiles:
        values = tile.distances.ravel()
        new = sign * _rounded(values)
        # Only the best of a tile, and equal ones, can be among the best of all.
        limit = np.partition(new, top - 1)[top - 1] if len(new) > top else np.inf
        few = np.flatnonzero(new <= min(limit, costs[-1] if len(costs) == top else np.inf))
        row, column = np.divmod(few, tile.distances.shape[1])
        at = (tile.rows.start + row) * width + tile.columns.start + column
        # The best so far, by cost and then position.
        costs, distances = np.append(costs, new[few]), np.append(distances, values[few])
        positions = np.append(positions, at)
        order = np.lexsort((positions, costs))[:top]
        costs, distances, positions = costs[order], distances[order], positions[order]
    return positions, distances
