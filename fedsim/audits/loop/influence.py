"""How far one record moves the steps of a loop: equal runs with one record or half replaced.

All runs have one seed, and each step receives the gradient that the first run released. Models and
batches are therefore the same, and a step's clipped sum changes by that record alone. If every
record enters the sum in one clipped term, it changes by at most twice the clipping norm.

Runs with half of all records replaced test every record: no more of a step's gradients may change
than items of its batch, and no more of the loader's items than records.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from adversaries.arrays import Bools
from fedsim.audits.loop.loader_records import checksums
from fedsim.audits.loop.measurement import Influence
from fedsim.audits.loop.worlds import LOUD, VERY_LOUD, Data, crafted_features, rare_and_common
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

Steps = Sequence[WatchedStep]


@dataclass(frozen=True)
class Training:
    """A run of the loop; `items`: checksums of the loader's records, None where not known."""

    steps: Steps
    items: list[str] | None


Run = Callable[[Data], Training]
"""Runs the loop with the gradients of the first run."""


def influence(
    first: Training,
    run: Run,
    data: Data,
    source: Callable[[int], int],
    target: str,
    seed: int,
) -> Influence:
    """Return what replaced records change in the steps.

    Args:
        first: the first run, on `data`.
        source: the record that an item of the loader probably is, where it equals no record.
        target: "crafted" or "real": kind of the records that replace others.
        seed: of the crafted records.
    """
    given = checksums(data.features, data.labels)
    items, steps = first.items or [], first.steps
    held = _held(items, given)
    if not steps:
        return replace(held, unseen=NO_STEPS)
    same = _same_batches(steps, again := run(data).steps)
    if not same or not all(_moved(*both) < ALIKE for both in zip(steps, again, strict=True)):
        return replace(held, unseen=UNREPEATED)
    equal = {row: place for place, row in enumerate(given)}

    def record_of(item: int) -> int:
        return equal.get(items[item], -1) if items else -1

    drawn = Counter[int]()
    for item, times in Counter(item for step in steps for item in step.members or ()).items():
        place = record_of(item)
        drawn[source(item) if place < 0 else place] += times
    places = [place for place, _ in drawn.most_common(PLACES)] or [len(data) - 1]
    found = []
    for place in places:
        runs = [steps]
        for other in _replacements(data, place, target, seed):
            runs.append(run(other).steps)
            if not _same_batches(steps, runs[-1]):
                return replace(held, unseen=FOLLOWS)
        found.append(_compared(runs))
    for half in _halves(data, target, seed):
        held = _halved(held, first, run(half), given, checksums(half.features, half.labels))
    if not held.unseen and not any(each.moved > LEAST for each in found):
        held = replace(held, unseen=UNDRAWN)
    return replace(
        held,
        places=len(places),
        moved=max(each.moved for each in found),
        always=max(each.always for each in found),
        gradients=max(each.gradients for each in found),
        items=max(each.items for each in found),
    )


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


def _held(items: Sequence[str], given: Sequence[str]) -> Influence:
    """Return which given record the loader holds most often, beyond its copies in the data."""
    known, counts = Counter(given), Counter(items)
    more = {row: -(-counts[row] // times) for row, times in known.items() if counts[row] > times}
    most = max(more, key=lambda row: more[row], default=None)
    others = [times for row, times in counts.items() if row not in known]
    alike = sum(others) - len(others)
    return Influence(
        copies=0 if most is None else more[most],
        copied=-1 if most is None else given.index(most),
        alike=alike if alike > len(given) - len(known) else 0,
    )


def _halved(
    found: Influence, first: Training, other: Training, given: Sequence[str], others: Sequence[str]
) -> Influence:
    """Return what was found, with what a half of the records changed."""
    if not _same_batches(first.steps, other.steps):
        return replace(found, unseen=FOLLOWS)
    if any(step.norms is None for step in first.steps):
        return replace(found, unseen=INVISIBLE)
    if not first.items:  # a data set that computes its records has its own doubt
        return found
    if len(other.items or ()) != len(first.items):
        return replace(found, unseen=FOLLOWS)
    items = np.array(first.items) != np.array(other.items)
    strays, elsewhere = found.strays, found.elsewhere
    for step, replaced in zip(first.steps, other.steps, strict=True):
        members = list(step.members or ())
        if step.rows != len(members):
            continue
        rows, drawn = _changed(step, replaced), items[members]
        strays = max(strays, int(rows.sum()) - int(drawn.sum()))
        elsewhere = max(elsewhere, int((rows & ~drawn).sum()))
    # If more items changed than records, one of these changed two at least.
    more = items.sum() > sum(a != b for a, b in zip(given, others, strict=True))
    return replace(
        found,
        halves=found.halves + 1,
        strays=strays,
        elsewhere=elsewhere,
        copies=max(found.copies, 2) if more else found.copies,
    )


def _compared(runs: Sequence[Steps]) -> Influence:
    """Return the largest changes between any two runs, which differ in one record."""
    moved = always = 0.0
    gradients = items = 0
    for one, other in combinations(runs, 2):
        apart = np.array([_moved(*steps) for steps in zip(one, other, strict=True)])
        moved = max(moved, float(apart.max()))
        took_part = apart[apart > LEAST]
        always = max(always, float(took_part.min()) if took_part.size else 0.0)
    for other in runs[1:]:
        reached = set[int]()
        for step, replaced in zip(runs[0], other, strict=True):
            rows = np.flatnonzero(_changed(step, replaced))
            gradients = max(gradients, len(rows))
            if step.members is not None and step.rows == len(step.members):
                reached |= {step.members[row] for row in rows}
        items = max(items, len(reached))
    return Influence(moved, always, gradients, items)


def _moved(one: WatchedStep, other: WatchedStep) -> float:
    return float(np.linalg.norm(one.clipped - other.clipped)) / max(one.limit, other.limit)


def _changed(one: WatchedStep, other: WatchedStep) -> Bools:
    """Return which gradients of a step changed, by their norms; none where they are not visible."""
    if one.norms is None or other.norms is None:
        return np.zeros(0, bool)
    rounding = 1e-6 * float(one.norms.max(initial=0.0))
    same = np.isclose(one.norms, other.norms, rtol=ALIKE, atol=rounding)  # [layers, rows]
    return np.logical_not(same.all(axis=0))


def _same_batches(one: Steps, other: Steps) -> bool:
    return len(one) == len(other) and all(
        a.members == b.members and a.clipped.shape == b.clipped.shape and a.rows == b.rows
        for a, b in zip(one, other, strict=True)
    )
