"""How far one record moves the steps of a loop: equal runs with one record or half replaced.

All runs have one seed, and each step receives the gradient that the first run released. Models and
batches are therefore the same, and a step's clipped sum changes by that record alone. If every
record enters the sum in one clipped term, it changes by at most twice the clipping norm.

Runs with half of all records replaced test every record: no more of a step's gradients may change
than items of its batch, and no more of the loader's items than records.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from adversaries.arrays import Bools
from fedsim.audits.loop.contract import LOUD, VERY_LOUD, Data, crafted_features, rare_and_common
from fedsim.audits.steps.observation import Influence
from fedsim.audits.steps.watch import WatchedStep
from fedsim.common.randomness import StreamRole, generator

REAL = 8
"""Number of the data's own records that take one record's place."""

PLACES = 3
"""Number of records that are replaced, one at a time: those that the loader drew most."""

HALVES = 8
"""Number of runs with half of all records replaced: random halves, and the rest of each."""

ALIKE = 1e-3
"""Relative difference of two gradients' norms up to which rounding explains it."""

LEAST = 0.1
"""Change of a sum, in clipping norms, below which the record took no part in the step."""

UNREPEATED = "two runs with one seed on the same records have different steps"
FOLLOWS = "the batches, or the number of steps, change where one record is replaced"
UNDRAWN = "no step of the runs changed where one record was replaced"
NO_STEPS = "the loop took no step of Opacus's optimizer"
INVISIBLE = "the steps do not show the norms of single records' gradients"


@dataclass(frozen=True)
class Training:
    """A run of the loop; `items`: checksums of the loader's records, [] where not known."""

    steps: Sequence[WatchedStep]
    items: list[str]


Run = Callable[[Data], Training]
"""Runs the loop with the gradients of the first run."""


def contents(dataset: Any, given: tuple[Any, Any]) -> list[str] | None:
    """Return a checksum of each record of a loader's data set.

    None for a data set that computes its records: one that is no TensorDataset, nor a Subset of
    one, and whose items are not the given records, unchanged.

    Args:
        dataset: a map-style data set.
        given: features [n, ...] and labels [n] that the loop was given.
    """
    from torch.utils.data import Subset, TensorDataset  # noqa: PLC0415

    if type(dataset) is Subset:
        whole = contents(dataset.dataset, given)
        return whole and [whole[place] for place in dataset.indices]
    if type(dataset) is TensorDataset:
        return checksums(*dataset.tensors)
    try:
        items = [_checksum(dataset[place]) for place in range(len(dataset))]
    except Exception:  # any code may stand there
        return None
    return items if set(checksums(*given)).issuperset(items) else None


def checksums(*arrays: Any) -> list[str]:
    """Return a checksum of each record of arrays [n, ...]."""
    return [_checksum(row) for row in zip(*arrays, strict=True)]


def _checksum(row: Any) -> str:
    # In one precision, so that a label may be a number or a tensor.
    numbers = [np.asarray(each, np.float64).tobytes() for each in row]
    return hashlib.sha256(b"".join(numbers)).hexdigest()[:16]


def influence(first: Training, run: Run, data: Data, target: str, seed: int) -> Influence:
    """Return what replaced records change in the steps.

    Args:
        first: the first run, on `data`.
        target: "crafted" or "real": kind of the records that replace others.
        seed: of the crafted records.
    """
    given = checksums(data.features, data.labels)
    known, counts = Counter(given), Counter(first.items)
    copies = [-(-counts[row] // times) for row, times in known.items() if counts[row] > times]
    found = Influence(copies=max(copies, default=0))
    if not first.steps:
        return replace(found, unseen=NO_STEPS)
    again = run(data)
    if not _same_batches(first, again) or any(
        _moved(*both) >= ALIKE for both in zip(first.steps, again.steps, strict=True)
    ):
        return replace(found, unseen=UNREPEATED)
    places = _drawn_most(first, given)
    for place in places:
        runs = [first]
        for other in _replacements(data, place, target, seed):
            runs.append(run(other))
            if not _same_batches(first, runs[-1]):
                return replace(found, unseen=FOLLOWS)
        found = _compared(found, runs)
    for half in _halves(data, target, seed):
        found = _halved(found, first, run(half), given, checksums(half.features, half.labels))
    if not found.unseen and found.moved <= LEAST:
        found = replace(found, unseen=UNDRAWN)
    return replace(found, places=len(places))


def _drawn_most(first: Training, given: Sequence[str]) -> list[int]:
    """Return the records that the loader drew most, as far as its items are known."""
    place_of = {row: place for place, row in enumerate(given)}
    drawn = Counter[int]()
    for step in first.steps:
        for item in step.members or ():
            record = first.items[item] if first.items else ""
            drawn[place_of.get(record, item % len(given))] += 1
    return [place for place, _ in drawn.most_common(PLACES)] or [len(given) - 1]


def _replacements(data: Data, place: int, target: str, seed: int) -> list[Data]:
    """Return the data with other records at one place: loud and opposite ones, or real ones."""
    if target == "real":
        others = np.linspace(0, len(data) - 1, REAL).astype(int)
        return [data.with_record(place, data.features[i], data.labels[i]) for i in others]
    point = crafted_features(data, seed)
    return [
        data.with_record(place, sign * loud * point, label)
        for loud in (LOUD, VERY_LOUD)
        for sign in (1, -1)
        for label in rare_and_common(data)
    ]


def _halves(data: Data, target: str, seed: int) -> list[Data]:
    """Return the data with other records in a half of the places: loud ones, or real ones."""
    random, made = generator(seed, StreamRole.CANDIDATES), []
    loud = 1.0 if target == "real" else LOUD
    for _ in range(HALVES // 2):
        for half in np.array_split(random.permutation(len(data)), 2):
            others = random.permutation(len(data))[: len(half)]
            features = loud * data.features[others]
            made.append(data.with_record(half, features, data.labels[others]))
    return made


def _halved(
    found: Influence, first: Training, other: Training, given: Sequence[str], others: Sequence[str]
) -> Influence:
    """Return what was found, with what a half of the records changed."""
    if not _same_batches(first, other):
        return replace(found, unseen=FOLLOWS)
    if any(step.norms is None for step in first.steps):
        return replace(found, unseen=INVISIBLE)
    if not first.items:  # a data set that computes its records has its own doubt
        return found
    if len(other.items) != len(first.items):
        return replace(found, unseen=FOLLOWS)
    items = np.array(first.items) != np.array(other.items)
    strays, elsewhere = found.strays, found.elsewhere
    for step, replaced in zip(first.steps, other.steps, strict=True):
        members = list(step.members or ())
        if step.rows == len(members):
            rows, drawn = _changed(step, replaced), items[members]
            strays = max(strays, int(rows.sum()) - int(drawn.sum()))
            elsewhere = max(elsewhere, int((rows & ~drawn).sum()))
    # If more items changed than records, one of these changed two at least.
    more = items.sum() > sum(a != b for a, b in zip(given, others, strict=True))
    copies = max(found.copies, 2) if more else found.copies
    return replace(
        found, halves=found.halves + 1, strays=strays, elsewhere=elsewhere, copies=copies
    )


def _compared(found: Influence, runs: Sequence[Training]) -> Influence:
    """Return what was found, with the largest changes between any two runs, one record apart."""
    moved, gradients = found.moved, found.gradients
    for one, other in combinations(runs, 2):
        apart = np.array([_moved(*both) for both in zip(one.steps, other.steps, strict=True)])
        moved = max(moved, float(apart.max()))
    for other in runs[1:]:
        for both in zip(runs[0].steps, other.steps, strict=True):
            gradients = max(gradients, int(_changed(*both).sum()))
    return replace(found, moved=moved, gradients=gradients)


def _moved(one: WatchedStep, other: WatchedStep) -> float:
    return float(np.linalg.norm(one.clipped - other.clipped)) / max(one.limit, other.limit)


def _changed(one: WatchedStep, other: WatchedStep) -> Bools:
    """Return which gradients of a step changed, by their norms; none where they are not visible."""
    if one.norms is None or other.norms is None:
        return np.zeros(0, bool)
    rounding = 1e-6 * float(one.norms.max(initial=0.0))
    same = np.isclose(one.norms, other.norms, rtol=ALIKE, atol=rounding)  # [layers, rows]
    return np.logical_not(same.all(axis=0))


def _same_batches(one: Training, other: Training) -> bool:
    return len(one.steps) == len(other.steps) and all(
        a.members == b.members and a.clipped.shape == b.clipped.shape and a.rows == b.rows
        for a, b in zip(one.steps, other.steps, strict=True)
    )
