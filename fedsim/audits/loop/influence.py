"""How far one record moves the steps of a loop: equal runs with one record replaced.

All runs have one seed, and each step receives the gradient that the first run released. Models and
batches are therefore the same, and a step's clipped sum changes by that record alone. If every
record enters the sum in one clipped term, it changes by at most twice the clipping norm.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from adversaries.arrays import Bools
from fedsim.audits.loop.contract import (
    LOUD,
    VERY_LOUD,
    Data,
    crafted_features,
    rare_and_common,
)
from fedsim.audits.loop.measurement import Influence
from fedsim.audits.loop.step_sums import StepSum

REAL = 8
"""Number of the data's own records that take one record's place."""

PLACES = 3
"""Number of records that are replaced, one at a time: those that the loader drew most."""

ALIKE = 1e-3
"""Relative difference of two gradients' norms up to which rounding explains it."""

LEAST = 0.1
"""Change of a sum, in clipping norms, below which the record took no part in the step."""

UNREPEATED = "two runs with one seed on the same records have different steps"
FOLLOWS = "the batches, or the number of steps, change where one record is replaced"
UNDRAWN = "no step of the runs changed where one record was replaced"
NO_STEPS = "the loop took no step of Opacus's optimizer"

Run = Callable[[Data], tuple[StepSum, ...]]
"""Runs the loop with the gradients of the first run, and returns its steps."""


def influence(
    first: Sequence[StepSum],
    run: Run,
    data: Data,
    source: Callable[[int], int],
    target: str,
    seed: int,
) -> Influence:
    """Return what one replaced record changes in the steps.

    Args:
        first: the steps of the first run on `data`.
        source: the record of the data that an item of the loader is.
        target: "crafted" or "real": kind of the records that replace others.
        seed: of the crafted records.
    """
    if not first:
        return Influence(unseen=NO_STEPS)
    if not _same_batches(first, again := run(data)) or not all(map(_equal, first, again)):
        return Influence(unseen=UNREPEATED)
    drawn = Counter(source(item) for step in first for item in step.members)
    places = [place for place, _ in drawn.most_common(PLACES)] or [len(data) - 1]
    found = []
    for place in places:
        runs = [tuple(first)]
        for other in replacements(data, place, target, seed):
            runs.append(run(other))
            if not _same_batches(first, runs[-1]):
                return Influence(unseen=FOLLOWS)
        found.append(_compared(runs))
    if not any(each.moved > LEAST for each in found):
        return Influence(unseen=UNDRAWN)
    return Influence(
        moved=max(each.moved for each in found),
        always=max(each.always for each in found),
        gradients=max(each.gradients for each in found),
        items=max(each.items for each in found),
    )


def replacements(data: Data, place: int, target: str, seed: int) -> list[Data]:
    """Return the data with other records at one place: loud and opposite ones, or real ones."""
    if target == "real":
        others = np.linspace(0, len(data) - 1, REAL).astype(int)
        return [data.with_record(place, data.features[i], data.labels[i]) for i in others]
    point = crafted_features(data, seed)
    return [
        data.with_record(place, sign * loud * point, label)
        for loud in (LOUD, VERY_LOUD)
        for sign in (1, -1)
        for label in rare_and_common(data.labels)
    ]


def _compared(runs: Sequence[Sequence[StepSum]]) -> Influence:
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
            if step.norms is not None and step.norms.shape[1] == len(step.members):
                reached |= {step.members[row] for row in rows}
        items = max(items, len(reached))
    return Influence(moved, always, gradients, items)


def _moved(one: StepSum, other: StepSum) -> float:
    return float(np.linalg.norm(one.clipped - other.clipped)) / max(one.limit, other.limit)


def _changed(one: StepSum, other: StepSum) -> Bools:
    """Return which gradients of a step changed, by their norms; none where they are not visible."""
    if one.norms is None or other.norms is None:
        return np.zeros(0, bool)
    rounding = 1e-6 * float(one.norms.max(initial=0.0))
    same = np.isclose(one.norms, other.norms, rtol=ALIKE, atol=rounding)  # [layers, rows]
    return np.logical_not(same.all(axis=0))


def _equal(one: StepSum, other: StepSum) -> bool:
    return _moved(one, other) < ALIKE


def _same_batches(one: Sequence[StepSum], other: Sequence[StepSum]) -> bool:
    return len(one) == len(other) and all(
        a.members == b.members and a.clipped.shape == b.clipped.shape and a.rows == b.rows
        for a, b in zip(one, other, strict=True)
    )
