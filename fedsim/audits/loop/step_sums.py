"""A step of Opacus's optimizer before its noise: the gradients that it clips and sums."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from adversaries.arrays import Floats
from fedsim.common.opacus_clipping import clipped_sums, gradient_norms, sensitivities


@dataclass(frozen=True)
class StepSum:
    """A step without its noise.

    Attributes:
        clipped: clipped sum [P].
        limit: largest L2 norm of a clipped gradient, C.
        members: indices that the loader drew for the step, in order.
        norms: norm of each summed gradient [layers, rows]; None where it is not visible.
    """

    clipped: Floats
    limit: float
    members: tuple[int, ...]
    norms: Floats | None

    @property
    def rows(self) -> int:
        return -1 if self.norms is None else int(self.norms.shape[1])


@dataclass(frozen=True)
class Influence:
    """What replaced records changed in the steps of otherwise equal runs.

    Attributes:
        moved: largest change of a step's clipped sum by one record, in clipping norms.
        always: change that every step with the record showed, for one pair of replacements.
        gradients: largest number of gradients that one record changed in one step.
        items: largest number of the loader's items whose gradients one record changed.
        places: number of records that were replaced, one at a time.
        halves: number of runs in which half of all records were replaced.
        strays: largest number of gradients of a step that changed, less that of its changed items.
        elsewhere: largest number of gradients of a step that changed though their item did not.
        copies: largest number of the loader's items that one record is known to change.
        copied: place of that record; -1 where its copies are not equal to it.
        alike: number of items that equal earlier ones, where they are no given records.
        unseen: why nothing was compared; "" where it was.
    """

    moved: float = 0.0
    always: float = 0.0
    gradients: int = 0
    items: int = 0
    places: int = 0
    halves: int = 0
    strays: int = 0
    elsewhere: int = 0
    copies: int = 0
    copied: int = -1
    alike: int = 0
    unseen: str = ""


NO_INFLUENCE = Influence()


@dataclass(frozen=True)
class Part:
    """Gradients that an optimizer is about to clip: those of a batch, or of a part of it.

    Attributes:
        expected: their clipped sum [clippings, P]; None where it is not visible.
        limits: largest L2 norm of a clipped gradient [clippings].
        norms: as in `StepSum`.
    """

    expected: Floats | None
    limits: Floats
    norms: Floats | None

    def after(self, before: "Part | None") -> "Part":
        """Return this part together with the earlier ones of its batch."""
        if before is None:
            return self
        expected = norms = None
        if before.expected is not None and self.expected is not None:
            expected = before.expected + self.expected
        if before.norms is not None and self.norms is not None:
            norms = np.concatenate([before.norms, self.norms], axis=1)
        return Part(expected, self.limits, norms)


def part_of(optimizer: Any, ghost: tuple[Floats, float] | None) -> Part:
    """Return what an optimizer is about to clip, or what ghost clipping has clipped for it.

    Args:
        ghost: gradient [P] that Opacus's ghost clipping made last, and its clipping norm.
    """
    norms = gradient_norms(optimizer)
    if ghost is None:
        return Part(clipped_sums(optimizer), sensitivities(optimizer), norms)
    gradient, limit = ghost
    return Part(gradient[None], np.array([limit]), norms)


@contextmanager
def instead(owner: Any, **methods: Callable[[], None]) -> Iterator[None]:
    """Give an object other methods in the block, and then what it had, its own code's included."""
    had = {name: vars(owner)[name] for name in methods if name in vars(owner)}
    vars(owner).update(methods)
    try:
        yield
    finally:
        for name, method in methods.items():
            if vars(owner).get(name) is method:  # else the code has set another one meanwhile
                del vars(owner)[name]
                vars(owner).update({name: had[name]} if name in had else {})
