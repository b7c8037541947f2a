"""Local sensitivity of a training step, for every record and every pair of records.

It is |g(x)| if the neighbouring data set lacks x, and |g(x) - g(x')| if it has x' instead (Bernau
et al., section 5.2). g is the gradient at one model, clipped to C. All results are measurements on
private data, never a DP release. Gradients come from float32 passes, as in training; norms and
inner products are float64.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from adversaries.arrays import Floats
from adversaries.errors import InputError
from fedsim.common.blocks import run, slices
from fedsim.common.device import single_threaded_kernels
from fedsim.game.federation import Federation
from fedsim.privacy.mechanism import Neighbouring, sensitivity
from fedsim.studies.rounds import Progress

Pair = tuple[int, int | None]
"""A position in D, and one in the pool; None if the record is removed and not replaced."""

ROUNDING = 1e-6
"""Difference, as a share of the bound of clipping, below which pairs count as equal."""

LENIENT = 1 + 1e-5
"""Factor by which a norm may exceed its bound by rounding. Above it, clipping is broken."""

ROWS_BYTES = 2**30
"""Memory for gradients of D at once. If D has more, the pool's gradients are computed again."""

BLOCK_PAIRS = 2**21
"""Pairs that one thread compares at once, in arrays of 16 MiB."""


@dataclass(frozen=True)
class Largest:
    """The pair of the largest local sensitivity at one model, of all pairs or all records of D.

    Attributes:
        pairs: number of those that were compared.
        bound: largest local sensitivity that clipping allows, C or 2C.
    """

    record: int
    replacement: int | None
    sensitivity: float
    pairs: int
    bound: float


def record_sensitivities(loaded: Federation, parameters: Tensor) -> Floats:
    """Return |g(x)| of every record x of D at every model [T, P], [T, n]."""
    members = len(loaded.split.members)
    groups = torch.arange(members, device=loaded.device)[:, None]
    norms = _distances(loaded, parameters, loaded.members(np.arange(members)), groups)
    return _within(norms, loaded.clipper.clipping_norm)


def pair_sensitivities(loaded: Federation, parameters: Tensor, pairs: Sequence[Pair]) -> Floats:
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
    if neighbouring is Neighbouring.REPLACE:
        others, columns = np.unique(np.asarray(replacements, dtype=np.intp), return_inverse=True)
        more = loaded.pool(others.tolist())
        features, labels = torch.cat([features, more[0]]), torch.cat([labels, more[1]])
        groups = np.stack([rows, len(kept) + columns], axis=1)
    indices = torch.from_numpy(groups).to(loaded.device)
    distances = _distances(loaded, parameters, (features, labels), indices)
    return _within(distances, sensitivity(neighbouring, loaded.clipper.clipping_norm))


def largest(
    loaded: Federation,
    parameters: Tensor,
    neighbouring: Neighbouring,
    progress: Progress | None = None,
) -> Largest:
    """Return the pair of the largest local sensitivity at one model.

    Local sensitivities that round to the same multiple of ROUNDING times the bound count as equal;
    of equal pairs, the lowest positions come first. The search takes bounded memory. Raises
    InputError if the pool is empty, or gradients are not clipped.
    """
    replace = neighbouring is Neighbouring.REPLACE
    members, pool = len(loaded.split.members), len(loaded.split.pool)
    if loaded.clipper.clipping_norm == math.inf:
        raise InputError(
            "the gradients of records are not clipped, so that local sensitivity has no bound; "
            'set training.clipping = true and privacy.unit = "record"'
        )
    if replace and not pool:
        raise InputError(
            "the pool has no record that could replace one of D; lower data.records or "
            'data.held-out, or set privacy.neighbouring = "add-remove"'
        )
    bound = sensitivity(neighbouring, loaded.clipper.clipping_norm)
    other: int | None = None
    if replace:
        _, record, other = max(_blocks(loaded, parameters, bound, progress))
        record, other = -record, -other
    else:
        norms = record_sensitivities(loaded, parameters[None])[0]
        record = int(np.round(norms / (ROUNDING * bound)).argmax())
    # It is measured again by norms, since inner products lose digits.
    value = float(pair_sensitivities(loaded, parameters[None], [(record, other)])[0, 0])
    return Largest(record, other, value, members * pool if replace else members, bound)


def check_pairs(loaded: Federation, pairs: Sequence[Pair], neighbouring: Neighbouring) -> None:
    """Raise InputError unless the pairs exist and have replacements exactly under replace."""
    replace = neighbouring is Neighbouring.REPLACE
    if any((replacement is not None) != replace for _, replacement in pairs):
        raise InputError(
            f"a pair has {'no' if replace else 'a'} replacement, but privacy.neighbouring is "
            f"'{neighbouring}'; give pairs of this kind"
        )
    members, pool = len(loaded.split.members), len(loaded.split.pool)
    for record, other in pairs:
        for name, place, count, where in (
            ("record", record, members, "D"),
            ("replacement", other, pool, "the pool"),
        ):
            if place is not None and not 0 <= place < count:
                raise InputError(
                    f"the {name} is {place}, but {where} has {count} records; give 0 to {count - 1}"
                )


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
    loaded: Federation, parameters: Tensor, tensors: tuple[Tensor, Tensor], groups: Tensor
) -> Floats:
    """Return |g(x)| or |g(x) - g(x')| at every model, [T, m], of groups [m, 1 or 2] of tensors."""
    models = parameters.to(loaded.device)
    distances: Floats = loaded.clipper.clipped_distances(models, *tensors, groups).cpu().numpy()
    return distances


def _blocks(
    loaded: Federation, parameters: Tensor, bound: float, progress: Progress | None
) -> Iterator[tuple[int, int, int]]:
    """Yield the largest |g(x) - g(x')| of every block of pairs, in multiples of ROUNDING * bound.

    Behind it follow the positions of x in D and of x' in the pool, with their signs changed. Up to
    ROWS_BYTES of D's gradients are kept; gradients of the pool exist for one block at a time in
    each thread.
    """
    if loaded.device.type == "cpu":
        single_threaded_kernels()
    model, pool = parameters[None].to(loaded.device), len(loaded.split.pool)
    features, labels = loaded.members(np.arange(len(loaded.split.members)))
    at_once = loaded.clipper.formed_at_once(features[0], labels[0])
    done = 0
    # As many gradients of D as fit into memory meet all gradients of the pool.
    for rows in slices(len(labels), max(1, ROWS_BYTES // (8 * parameters.numel()))):
        ours = torch.cat(
            [
                loaded.clipper.clipped_gradients(model, features[rows][part], labels[rows][part])[0]
                for part in slices(len(labels[rows]), at_once)
            ]
        )

        squares = ours.square().sum(1)[:, None]

        def block(
            part: slice, rows: slice = rows, ours: Tensor = ours, squares: Tensor = squares
        ) -> tuple[int, int, int]:
            others = loaded.pool([*range(pool)[part]])
            theirs = loaded.clipper.clipped_gradients(model, *others)[0]
            # |a - b|^2 = |a|^2 + |b|^2 - 2 <a, b>: one matrix product for all pairs.
            distances = torch.addmm(theirs.square().sum(1), ours, theirs.mT, alpha=-2)
            # Rounding may make the square of a small distance negative.
            distances.add_(squares).clamp_(min=0).sqrt_()
            _within(np.array([float(distances.max())]), bound)
            steps = (distances / (ROUNDING * bound)).round_()
            row, column = divmod(int(steps.flatten().eq(steps.max()).nonzero()[0]), steps.shape[1])
            return int(steps.max()), -(rows.start + row), -(part.start + column)

        columns_at_once = min(at_once, max(1, BLOCK_PAIRS // len(ours)))
        blocks = [(part,) for part in slices(pool, columns_at_once)]
        for (part,), found in zip(blocks, run(block, blocks, loaded.clipper.threads), strict=True):
            yield found
            done += (rows.stop - rows.start) * (part.stop - part.start)
            if progress is not None:
                progress(done / (len(labels) * pool))
