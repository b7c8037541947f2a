"""A step without its noise, and what replaced records change in it."""

from dataclasses import dataclass

from adversaries.arrays import Floats


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
