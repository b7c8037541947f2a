"""Local sensitivity of a training step, for every record and every pair of records.

It is |g(x)| if the neighbouring data set lacks x, and |g(x) - g(x')| if it has x' instead (Bernau
et al., section 5.2). g is the gradient at one model, clipped to C. All results are measurements on
private data, never a DP release. Gradients come from float32 passes, as in training; norms and
inner products are float64.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adversaries.arrays import Floats, Ints
from adversaries.errors import InputError
from fedsim.common.blocks import run, slices
from fedsim.common.device import single_threaded_kernels
from fedsim.game.federation import Federation
from fedsim.privacy.mechanism import Neighbouring, sensitivity
from fedsim.studies.rounds import Progress

ROUNDING = 1e-6
"""Difference, as a share of the bound of clipping, below which pairs count as equal."""


Counts = tuple[slice, Floats, Ints, Ints]
"""Of a block of pairs: its records, `by_record`, `exceeded` and `best`, as in `_Search`."""


class _Search:
    """The largest of all pairs seen so far.

    Attributes:
        by_record: float64 [n], largest local sensitivity of every record.
        exceeded: int64 [m + 1], at i: number of pairs that exceed exactly i thresholds.
        best: int64 [c], keys of the largest pairs, the largest last. A key orders pairs by their
            sensitivity in units of ROUNDING, and equal pairs by position: if all gradients are
            clipped, all pairs may be equal.
    """

    def __init__(self, members: int, width: int, bound: float, thresholds: Tensor, kept: int):
        """Begin a search of `width` pairs for each record; thresholds: ascending [m]."""
        self._width, self._total, self._bound, self._kept = width, members * width, bound, kept
        self._thresholds = thresholds
        self.by_record = np.zeros(members)
        self.exceeded = np.zeros(len(thresholds) + 1, dtype=np.int64)
        self.best = np.empty(0, dtype=np.int64)

    def count(self, rows: slice, columns: slice, distances: Tensor) -> Counts:
        """Return the counts of one block of local sensitivities, float64 [r, c]."""
        flat = distances.flatten()
        passed = torch.bucketize(flat, self._thresholds)
        records = torch.arange(rows.start, rows.stop, device=flat.device)
        others = torch.arange(columns.start, columns.stop, device=flat.device)
        places = (records[:, None] * self._width + others).flatten()
        keys = (flat / (ROUNDING * self._bound)).round_().long() * self._total - places
        return (
            rows,
            distances.amax(1).cpu().numpy(),
            passed.bincount(minlength=len(self.exceeded)).cpu().numpy(),
            keys.topk(min(self._kept, len(keys))).values.cpu().numpy(),
        )

    def add(self, counts: Counts) -> None:
        rows, by_record, exceeded, best = counts
        np.maximum(self.by_record[rows], by_record, out=self.by_record[rows])
        self.exceeded += exceeded
        self.best = np.sort(np.concatenate([self.best, best]))[-self._kept :]

    def pairs(self) -> list[tuple[int, int]]:
        """Return record and replacement of the largest pairs."""
        # A key is a multiple of the total less the place, so the place is its negative remainder.
        records, others = np.divmod(-self.best % self._total, self._width)
        return list(zip(records.tolist(), others.tolist(), strict=True))


Pair = tuple[int, int | None]
"""A position in D, and one in the pool; None if the record is removed and not replaced."""

LENIENT = 1 + 1e-5
"""Factor by which a norm may exceed its bound by rounding. Above it, clipping is broken."""

SPARE = 64
"""Number of candidates kept besides the largest, since rounding may change their order."""

GRADIENTS_PER_REPORT = 2**12

ROWS_BYTES = 2**30
"""Memory for gradients of D at once. If D has more, the pool's gradients are computed again."""


BLOCK_PAIRS = 2**21
"""Pairs that one thread compares at once, in arrays of 16 MiB."""


@dataclass(frozen=True)
class Ranked:
    """A pair of positions in D and the pool, and its rank from 1, which equals share."""

    record: int
    replacement: int | None
    sensitivity: float
    rank: int


@dataclass(frozen=True, eq=False)
class Truth:
    """The result of the exhaustive search at one model, over all pairs or all records of D.

    Attributes:
        bound: largest local sensitivity that clipping allows, C or 2C.
        by_record: float64 [n], largest local sensitivity of every record of D, over replacements.
    """

    pairs: int
    bound: float
    largest: tuple[Ranked, ...]
    given: tuple[Ranked, ...]
    by_record: Floats

    def percentile(self, pair: Ranked) -> float:
        """Return the percentage of pairs with no larger local sensitivity, in (0, 100]."""
        return 100 * (1 - (pair.rank - 1) / self.pairs)


def record_sensitivities(
    loaded: Federation, parameters: Tensor, progress: Progress | None = None
) -> Floats:
    """Return |g(x)| of every record x of D at every model [T, P], [T, n]."""
    members = len(loaded.split.members)
    tensors = loaded.members(np.arange(members))
    groups = torch.arange(members, device=loaded.device)[:, None]
    norms = _distances(loaded, parameters, tensors, groups, progress)
    return _within(norms, loaded.clipper.clipping_norm)


def pair_sensitivities(
    loaded: Federation, parameters: Tensor, pairs: Sequence[Pair], progress: Progress | None = None
) -> Floats:
    """Return |g(x) - g(x')| of some pairs at every model, or |g(x)| if all x' are None, [T, m]."""
    if not pairs:
        return np.empty((len(parameters), 0))
    neighbouring = Neighbouring.ADD_REMOVE if pairs[0][1] is None else Neighbouring.REPLACE
    check_pairs(loaded, pairs, neighbouring)
    records, replacements = zip(*pairs, strict=True)
    # A record of several pairs is evaluated once.
    kept, rows = np.unique(np.asarray(records, dtype=np.intp), return_inverse=True)
    features, labels = loaded.members(kept)
    groups = rows[:, None]
    if replacements[0] is not None:
        others, columns = np.unique(np.asarray(replacements, dtype=np.intp), return_inverse=True)
        more = loaded.pool(others.tolist())
        features, labels = torch.cat([features, more[0]]), torch.cat([labels, more[1]])
        groups = np.stack([rows, len(kept) + columns], axis=1)
    indices = torch.from_numpy(groups).to(loaded.device)
    distances = _distances(loaded, parameters, (features, labels), indices, progress)
    return _within(distances, groups.shape[1] * loaded.clipper.clipping_norm)


def sensitivity_matrix(
    loaded: Federation,
    parameters: Tensor,
    replacements: Sequence[int] | npt.NDArray[np.intp],
    progress: Progress | None = None,
) -> Floats:
    """Return |g(x) - g(x')| of every x of D and some x' of the pool at one model, [n, p'].

    It is computed as |g|^2 + |g'|^2 - 2 <g, g'>. Distances below 1e-4 C lose digits, but stay right
    to 1e-7 C.
    """
    columns = np.asarray(replacements, dtype=np.intp)
    _check_positions("replacement", columns, len(loaded.split.pool), "the pool")
    matrix = np.empty((len(loaded.split.members), len(columns)))

    def fill(rows: slice, part: slice, distances: Tensor) -> None:
        matrix[rows, part] = distances.cpu().numpy()

    for _ in _each_block(loaded, parameters, columns, fill, progress):
        pass
    return _within(matrix, 2 * loaded.clipper.clipping_norm)


def largest(
    loaded: Federation,
    parameters: Tensor,
    neighbouring: Neighbouring,
    top: int = 1,
    of: Sequence[Pair] = (),
    progress: Progress | None = None,
) -> Truth:
    """Return the pairs of the largest local sensitivity at one model, and the ranks of others.

    Local sensitivities that round to the same multiple of ROUNDING times the bound count as equal;
    of equal pairs, the lowest positions come first. The search takes bounded memory and one pass
    over the pool. Raises InputError if a position does not exist, `top` exceeds the number of
    pairs, or gradients are not clipped.
    """
    replace = neighbouring is Neighbouring.REPLACE
    members, pool = len(loaded.split.members), len(loaded.split.pool)
    total = members * pool if replace else members
    _check_searchable(loaded, neighbouring, top, total, of)
    bound = sensitivity(neighbouring, loaded.clipper.clipping_norm)
    models = parameters[None]
    # The named pairs come first: their rank is 1 plus the number of pairs above their threshold.
    named = pair_sensitivities(loaded, models, of)[0]
    thresholds = np.sort(named + ROUNDING * bound)
    on_device = torch.from_numpy(thresholds).to(loaded.device)
    width = pool if replace else 1
    search = _Search(members, width, bound, on_device, min(total, top + SPARE))
    # A block is counted and dropped, so that memory stays bounded.
    if replace:
        for counts in _each_block(loaded, parameters, np.arange(pool), search.count, progress):
            search.add(counts)
    else:
        norms = torch.from_numpy(record_sensitivities(loaded, models, progress)[0])
        column = norms.to(loaded.device)[:, None]
        search.add(search.count(slice(0, members), slice(0, 1), column))
    _within(search.by_record, bound)
    # `exceeded` counts pairs by the number of thresholds below them; sum up from the highest.
    above = search.exceeded[::-1].cumsum()[::-1][1:]
    ranks = 1 + above[np.searchsorted(thresholds, named + ROUNDING * bound)]
    candidates = [(x, other if replace else None) for x, other in search.pairs()]
    # The candidates are measured again by norms, since inner products lose digits.
    exact = pair_sensitivities(loaded, models, candidates)[0]
    first = _order(candidates, exact, ROUNDING * bound)[:top]
    given = tuple(_ranked(*each) for each in zip(of, named, ranks, strict=True))
    return Truth(total, bound, first, given, search.by_record)


def check_pairs(loaded: Federation, pairs: Sequence[Pair], neighbouring: Neighbouring) -> None:
    """Raise InputError unless the pairs exist and have replacements exactly under replace."""
    replace = neighbouring is Neighbouring.REPLACE
    if any((replacement is not None) != replace for _, replacement in pairs):
        raise InputError(
            f"a pair has {'no' if replace else 'a'} replacement, but privacy.neighbouring is "
            f"'{neighbouring}'; give pairs of this kind"
        )
    records = np.asarray([record for record, _ in pairs], dtype=np.intp)
    _check_positions("record", records, len(loaded.split.members), "D")
    columns = [other for _, other in pairs if other is not None]
    _check_positions(
        "replacement", np.asarray(columns, dtype=np.intp), len(loaded.split.pool), "the pool"
    )


def _check_positions(name: str, positions: npt.NDArray[np.intp], count: int, where: str) -> None:
    wrong = positions[(positions < 0) | (positions >= count)]
    if wrong.size:
        raise InputError(
            f"the {name} is {wrong[0]}, but {where} has {count} records; give 0 to {count - 1}"
        )


def _check_searchable(
    loaded: Federation, neighbouring: Neighbouring, top: int, total: int, of: Sequence[Pair]
) -> None:
    """Raise InputError, before the search, if it is impossible."""
    if loaded.clipper.clipping_norm == math.inf:
        raise InputError(
            "the gradients of records are not clipped, so that local sensitivity has no bound; "
            'set training.clipping = true and privacy.unit = "record"'
        )
    if not total:
        raise InputError(
            "the pool has no record that could replace one of D; lower data.records or "
            'data.held-out, or set privacy.neighbouring = "add-remove"'
        )
    if not 1 <= top <= total:
        raise InputError(f"top is {top}, but there are {total} pairs; give 1 to {total}")
    check_pairs(loaded, of, neighbouring)


def _order(pairs: Sequence[Pair], values: Floats, equal: float) -> tuple[Ranked, ...]:
    """Return pairs from the largest on; of equal multiples of `equal`, lowest positions first."""
    steps = np.round(values / equal)
    ranks = 1 + (steps[:, None] > steps).sum(axis=0)
    order = sorted(range(len(pairs)), key=lambda i: (-steps[i], pairs[i][0], pairs[i][1] or 0))
    return tuple(_ranked(pairs[i], values[i], ranks[i]) for i in order)


def _ranked(pair: Pair, value: np.float64, rank: np.int64) -> Ranked:
    return Ranked(pair[0], pair[1], float(value), int(rank))


def _within(sensitivities: Floats, bound: float) -> Floats:
    """Return local sensitivities. Raises RuntimeError above the bound, on which privacy rests."""
    most = float(sensitivities.max(initial=0.0))
    if not most <= bound * LENIENT:
        raise RuntimeError(
            f"a local sensitivity is {most:.9g}, above the {bound:.9g} that clipping allows: "
            "clipping is broken"
        )
    return sensitivities


def _distances(
    loaded: Federation,
    parameters: Tensor,
    tensors: tuple[Tensor, Tensor],
    groups: Tensor,
    progress: Progress | None,
) -> Floats:
    """Return |g(x)| or |g(x) - g(x')| at every model, [T, m], of groups [m, 1 or 2] of tensors."""
    distances = np.empty((len(parameters), len(groups)))
    done = 0
    together = max(1, GRADIENTS_PER_REPORT // max(1, len(parameters)))
    for part in slices(len(groups), together):
        for trials in slices(len(parameters), GRADIENTS_PER_REPORT):
            some = parameters[trials].to(loaded.device)
            chosen = groups[part].expand(len(some), -1, -1)
            block = loaded.clipper.clipped_distances(some, *tensors, chosen)
            distances[trials, part] = block.cpu().numpy()
            done += block.numel()
            if progress is not None:
                progress(done / distances.size)
    return distances


Result = TypeVar("Result")


def _each_block(
    loaded: Federation,
    parameters: Tensor,
    columns: npt.NDArray[np.intp],
    use: Callable[[slice, slice, Tensor], Result],
    progress: Progress | None,
) -> Iterator[Result]:
    """Yield the result of `use` for every block of |g(x) - g(x')|, float64 [r, c].

    x are records of D, x' those of the pool at `columns`. Up to ROWS_BYTES of D's gradients are
    kept; gradients of the pool exist for one block at a time in each thread.
    """
    if loaded.device.type == "cpu":
        single_threaded_kernels()
    model = parameters[None].to(loaded.device)
    features, labels = loaded.members(np.arange(len(loaded.split.members)))
    at_once = loaded.clipper.formed_at_once(features[0], labels[0])
    rows_at_once = max(1, ROWS_BYTES // (8 * parameters.numel()))
    done = 0
    # As many gradients of D as fit into memory meet all gradients of the pool.
    for rows in slices(len(labels), rows_at_once):
        ours = torch.cat(
            [
                loaded.clipper.clipped_gradients(model, features[rows][part], labels[rows][part])[0]
                for part in slices(len(labels[rows]), at_once)
            ]
        )
        squares = ours.square().sum(1)

        def block(
            part: slice, rows: slice = rows, ours: Tensor = ours, squares: Tensor = squares
        ) -> Result:
            others = loaded.pool(columns[part].tolist())
            theirs = loaded.clipper.clipped_gradients(model, *others)[0]
            # |a - b|^2 = |a|^2 + |b|^2 - 2 <a, b>: one matrix product for all pairs.
            distances = torch.addmm(theirs.square().sum(1), ours, theirs.mT, alpha=-2)
            # Rounding may make the square of a small distance negative.
            distances.add_(squares[:, None]).clamp_(min=0).sqrt_()
            return use(rows, part, distances)

        columns_at_once = min(at_once, max(1, BLOCK_PAIRS // len(ours)))
        blocks = [(part,) for part in slices(len(columns), columns_at_once)]
        for (part,), result in zip(blocks, run(block, blocks, loaded.clipper.threads), strict=True):
            yield result
            done += (rows.stop - rows.start) * (part.stop - part.start)
            if progress is not None:
                progress(done / (len(labels) * len(columns)))
