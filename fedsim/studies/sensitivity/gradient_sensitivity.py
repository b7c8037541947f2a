"""Local sensitivity: how far a record really moves a step, for every record and every pair.

|g(x)| where the neighbouring dataset lacks x, |g(x) - g(x')| where it has x' instead (Bernau et
al., section 5.2); g is the gradient, clipped to C, of one model. `largest` searches exhaustively:
it finds the pair that a heuristic (`adversaries.neighbours.dataset_sensitivity`) seeks without
gradients, and says where the heuristic's choice ranks. All of it depends on the data: a
measurement, never a DP release.

Gradients are those of training, of float32 passes, and norms and inner products are float64. What
is told of one record or pair differs with the cut into blocks by less than `ROUNDING`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adversaries.errors import InputError
from fedsim.common.blocks import run, slices
from fedsim.common.device import single_threaded_kernels
from fedsim.game.federation import Federation
from fedsim.privacy.mechanism import Neighbouring, sensitivity
from fedsim.studies.sensitivity.pair_counts import BINS, ROUNDING, Counter, Counts, Floats, added_up

Pair = tuple[int, int | None]
"""A position in D, and one in the pool; None where the record is missing and not replaced."""

Progress = Callable[[float], None]
"""Called with the share that is done."""

LENIENT = 1 + 1e-5
"""By what factor a norm may be above its bound, before clipping is taken to be broken."""

SPARE = 64
"""Candidates that are kept besides the largest, since rounding may change their order."""

GRADIENTS_PER_REPORT = 2**12
"""Gradients between two reports of progress."""

ROWS_BYTES = 2**30
"""Memory of D's gradients at once. Where they are more, those of the pool are computed again."""


BLOCK_PAIRS = 2**21
"""Pairs that one thread compares at once: 16 MiB for each array of them."""


@dataclass(frozen=True)
class Ranked:
    """A pair with its local sensitivity.

    Attributes:
        record: position in D.
        replacement: position in the pool; None if the record is missing and not replaced.
        sensitivity: |g(x) - g(x')|, or |g(x)| without a replacement; at most the bound.
        rank: 1 is the largest, and equals share a rank.
    """

    record: int
    replacement: int | None
    sensitivity: float
    rank: int


@dataclass(frozen=True, eq=False)
class Truth:
    """What the exhaustive search found at one model.

    Of all pairs of D and the pool, or of all records of D.

    Attributes:
        bound: what clipping allows, C or 2C.
        by_record: float64 [n], the largest local sensitivity of every record of D, over all that
            may replace it.
        histogram: int64 [BINS], how many pairs lie in each part of 0..bound.
    """

    pairs: int
    bound: float
    largest: tuple[Ranked, ...]
    given: tuple[Ranked, ...]
    by_record: Floats
    histogram: npt.NDArray[np.int64]

    def quantile(self, share: float) -> float:
        """Return what this share of all pairs does not exceed, to bound / BINS."""
        reached = np.cumsum(self.histogram) >= share * self.pairs
        return float((np.argmax(reached) + 1) * self.bound / BINS)

    def percentile(self, pair: Ranked) -> float:
        """Return the percentage of pairs whose local sensitivity is not larger, in (0, 100]."""
        return 100 * (1 - (pair.rank - 1) / self.pairs)


def record_sensitivities(
    known: Federation, parameters: Tensor, progress: Progress | None = None
) -> Floats:
    """Return |g(x)| of every record x of D at every model, [T, n].

    Args:
        parameters: [T, P], the models.

    Raises:
        RuntimeError: one exceeds what clipping allows.
    """
    members = len(known.split.members)
    tensors = known.members(np.arange(members))
    groups = torch.arange(members, device=known.device)[:, None]
    norms = _distances(known, parameters, tensors, groups, progress)
    return _within(norms, known.clipper.clipping_norm)


def pair_sensitivities(
    known: Federation,
    parameters: Tensor,
    pairs: Sequence[Pair],
    progress: Progress | None = None,
) -> Floats:
    """Return |g(x) - g(x')| of some pairs at every model, or |g(x)| where x' is None, [T, m].

    Args:
        parameters: [T, P], the models.
        pairs: m of them; either all or none have a replacement.
    """
    if not pairs:
        return np.empty((len(parameters), 0))
    neighbouring = Neighbouring.ADD_REMOVE if pairs[0][1] is None else Neighbouring.REPLACE
    check_pairs(known, pairs, neighbouring)
    records, replacements = zip(*pairs, strict=True)
    kept, rows = np.unique(np.asarray(records, dtype=np.intp), return_inverse=True)
    features, labels = known.members(kept)
    groups = rows[:, None]
    if replacements[0] is not None:
        others, columns = np.unique(np.asarray(replacements, dtype=np.intp), return_inverse=True)
        more = known.pool(others.tolist())
        features, labels = torch.cat([features, more[0]]), torch.cat([labels, more[1]])
        groups = np.stack([rows, len(kept) + columns], axis=1)
    found = _distances(
        known,
        parameters,
        (features, labels),
        torch.from_numpy(groups).to(known.device),
        progress,
    )
    return _within(found, groups.shape[1] * known.clipper.clipping_norm)


def sensitivity_matrix(
    known: Federation,
    parameters: Tensor,
    replacements: Sequence[int] | npt.NDArray[np.intp],
    progress: Progress | None = None,
) -> Floats:
    """Return |g(x) - g(x')| of every x of D and some x' of the pool at one model, [n, p'].

    From inner products, as |g|^2 + |g'|^2 - 2 <g, g'>: distances below 1e-4 C lose digits, and are
    still right to 1e-7 C.

    Args:
        parameters: [P], the model.
        replacements: int [p'], positions in the pool.
    """
    columns = np.asarray(replacements, dtype=np.intp)
    _check_positions("replacement", columns, len(known.split.pool), "the pool")
    matrix = np.empty((len(known.split.members), len(columns)))

    def fill(rows: slice, part: slice, distances: Tensor) -> None:
        matrix[rows, part] = distances.cpu().numpy()

    for _ in _each_block(known, parameters, columns, fill, progress):
        pass
    return _within(matrix, 2 * known.clipper.clipping_norm)


def largest(
    known: Federation,
    parameters: Tensor,
    neighbouring: Neighbouring,
    top: int = 1,
    of: Sequence[Pair] = (),
    progress: Progress | None = None,
) -> Truth:
    """Return the pairs of the largest local sensitivity at one model, and where others rank.

    Pairs that differ by less than ROUNDING times what clipping allows count as equal, of which the
    lowest positions come first. In bounded memory, and in one pass over the pool.

    Args:
        parameters: [P], the model.
        neighbouring: replace is over all pairs of D and the pool, add-remove over all records of D.

    Raises:
        InputError: positions that are not there; more of the largest than there are pairs;
            gradients that are not clipped.
    """
    replace = neighbouring is Neighbouring.REPLACE
    members, pool = len(known.split.members), len(known.split.pool)
    total = members * pool if replace else members
    _check_searchable(known, neighbouring, top, total, of)
    bound = sensitivity(neighbouring, known.clipper.clipping_norm)
    models = parameters[None]
    # What is asked for is measured first: a pair ranks behind those that exceed its threshold.
    asked = pair_sensitivities(known, models, of)[0]
    thresholds = np.sort(asked + ROUNDING * bound)
    counter = Counter(
        bound,
        torch.from_numpy(thresholds).to(known.device),
        pool if replace else 1,
        total,
        min(total, top + SPARE),
    )
    # Every block of pairs is counted and let go.
    found = _counted(known, parameters, replace, counter, progress)
    by_record, histogram, exceeded, best = added_up(found, members, len(of), counter.candidates)
    _within(by_record, bound)
    # How many pairs are above each threshold, the lowest first: all that exceed it or a higher one.
    above = exceeded[::-1].cumsum()[::-1][1:]
    ranks = 1 + above[np.searchsorted(thresholds, asked + ROUNDING * bound)]
    candidates = counter.pairs(best) if replace else [(x, None) for x, _ in counter.pairs(best)]
    exact = pair_sensitivities(known, models, candidates)[0]
    first = _order(candidates, exact, ROUNDING * bound)[:top]
    given = tuple(_ranked(*each) for each in zip(of, asked, ranks, strict=True))
    return Truth(total, bound, first, given, by_record, histogram)


def _counted(
    known: Federation,
    parameters: Tensor,
    replace: bool,
    counter: Counter,
    progress: Progress | None,
) -> Iterator[Counts]:
    """Yield the counts of every block of pairs; of all records in one where none is replaced."""
    if replace:
        columns = np.arange(len(known.split.pool))
        yield from _each_block(known, parameters, columns, counter.count, progress)
        return
    norms = torch.from_numpy(record_sensitivities(known, parameters[None], progress)[0])
    column = norms.to(known.device)[:, None]
    yield counter.count(slice(0, len(column)), slice(0, 1), column)


def check_pairs(known: Federation, pairs: Sequence[Pair], neighbouring: Neighbouring) -> None:
    """Raise an error unless the pairs are of this kind, and of records that are there.

    Args:
        neighbouring: under replace each has a replacement, under add-remove none.
    """
    replace = neighbouring is Neighbouring.REPLACE
    if any((replacement is not None) != replace for _, replacement in pairs):
        raise InputError(
            f"a pair has {'no' if replace else 'a'} replacement, but neighbours are those of "
            f"'{neighbouring}'; give pairs of that kind"
        )
    records = np.asarray([record for record, _ in pairs], dtype=np.intp)
    _check_positions("record", records, len(known.split.members), "D")
    columns = [other for _, other in pairs if other is not None]
    _check_positions(
        "replacement", np.asarray(columns, dtype=np.intp), len(known.split.pool), "the pool"
    )


def _check_positions(what: str, positions: npt.NDArray[np.intp], count: int, where: str) -> None:
    wrong = positions[(positions < 0) | (positions >= count)]
    if wrong.size:
        raise InputError(
            f"the {what} is {wrong[0]}, but {where} has {count} records; give 0 to {count - 1}"
        )


def _check_searchable(
    known: Federation, neighbouring: Neighbouring, top: int, total: int, of: Sequence[Pair]
) -> None:
    """Raise InputError for a search that cannot be made, before it rather than after."""
    if known.clipper.clipping_norm == math.inf:
        raise InputError(
            "no gradient of a record is clipped here, so that nothing bounds a local sensitivity; "
            'set training.clipping = true and privacy.unit = "record"'
        )
    if not total:
        raise InputError(
            "no record is left in the pool to replace one of D by; lower data.records or "
            'data.held-out, or set privacy.neighbouring = "add-remove"'
        )
    if not 1 <= top <= total:
        raise InputError(f"the {top} largest of {total} were asked for; give 1 to {total}")
    check_pairs(known, of, neighbouring)


def _order(pairs: Sequence[Pair], values: Floats, equal: float) -> tuple[Ranked, ...]:
    """Return pairs from the largest on; of those that are equal, the lowest positions first."""
    ranks = 1 + (values[:, None] > values + equal).sum(axis=0)
    left = sorted(range(len(pairs)), key=lambda i: -values[i])
    order: list[int] = []
    while left:
        ties = [i for i in left if values[i] >= values[left[0]] - equal]
        order += sorted(ties, key=lambda i: (pairs[i][0], pairs[i][1] or 0))
        left = left[len(ties) :]
    return tuple(_ranked(pairs[i], values[i], ranks[i]) for i in order)


def _ranked(pair: Pair, value: np.float64, rank: np.int64) -> Ranked:
    return Ranked(pair[0], pair[1], float(value), int(rank))


def _within(found: Floats, bound: float) -> Floats:
    """Return local sensitivities, none of which may exceed its bound: privacy rests on that."""
    most = float(found.max(initial=0.0))
    if not most <= bound * LENIENT:
        raise RuntimeError(
            f"a local sensitivity is {most:.9g}, above the {bound:.9g} that clipping allows: "
            "clipping is broken"
        )
    return found


def _distances(
    known: Federation,
    parameters: Tensor,
    tensors: tuple[Tensor, Tensor],
    groups: Tensor,
    progress: Progress | None,
) -> Floats:
    """Return |g(x)| or |g(x) - g(x')| at every model, [T, m]; groups [m, 1 or 2] of the records."""
    found = np.empty((len(parameters), len(groups)))
    done = 0
    together = max(1, GRADIENTS_PER_REPORT // max(1, len(parameters)))
    for part in slices(len(groups), together):
        for trials in slices(len(parameters), GRADIENTS_PER_REPORT):
            some = parameters[trials].to(known.device)
            chosen = groups[part].expand(len(some), -1, -1)
            block = known.clipper.clipped_distances(some, *tensors, chosen)
            found[trials, part] = block.cpu().numpy()
            done += block.numel()
            if progress is not None:
                progress(done / found.size)
    return found


Result = TypeVar("Result")


def _each_block(
    known: Federation,
    parameters: Tensor,
    columns: npt.NDArray[np.intp],
    use: Callable[[slice, slice, Tensor], Result],
    progress: Progress | None,
) -> Iterator[Result]:
    """Yield what is made of |g(x) - g(x')|, float64 [r, c], block by block of pairs.

    x: records of D, x': those of the pool at `columns`. D's gradients are kept, as far as
    ROWS_BYTES allow, and those of the pool exist for one block at a time in each thread.
    """
    if known.device.type == "cpu":
        single_threaded_kernels()
    model = parameters[None].to(known.device)
    features, labels = known.members(np.arange(len(known.split.members)))
    at_once = known.clipper.formed_at_once(features[0], labels[0])
    rows_at_once = max(1, ROWS_BYTES // (8 * parameters.numel()))
    done = 0
    # As many of D's gradients as fit, against all of the pool's, block by block.
    for rows in slices(len(labels), rows_at_once):
        ours = torch.cat(
            [
                known.clipper.clipped_gradients(model, features[rows][part], labels[rows][part])[0]
                for part in slices(len(labels[rows]), at_once)
            ]
        )
        squares = ours.square().sum(1)

        def block(
            part: slice, rows: slice = rows, ours: Tensor = ours, squares: Tensor = squares
        ) -> Result:
            theirs = known.clipper.clipped_gradients(model, *known.pool(columns[part].tolist()))[0]
            # |a - b|^2 = |a|^2 + |b|^2 - 2 <a, b>: one matrix product for all pairs.
            distances = torch.addmm(theirs.square().sum(1), ours, theirs.mT, alpha=-2)
            distances.add_(squares[:, None]).clamp_(min=0).sqrt_()
            return use(rows, part, distances)

        columns_at_once = min(at_once, max(1, BLOCK_PAIRS // len(ours)))
        blocks = [(part,) for part in slices(len(columns), columns_at_once)]
        for (part,), result in zip(blocks, run(block, blocks, known.clipper.threads), strict=True):
            yield result
            done += (rows.stop - rows.start) * (part.stop - part.start)
            if progress is not None:
                progress(done / (len(labels) * len(columns)))
