"""Measurements of a loop's runs, without any code of the loop."""

from dataclasses import dataclass
from typing import Literal

from fedsim.audits.steps.classes import LoopStatement
from fedsim.audits.steps.step import Step

FEATURES = ("sampled", "total", "last", "largest", "energy", "steps")
"""Features of every attacked run, in the order of `Features`.

sampled: log-likelihood ratio of all steps, by the pilots' influence, noise and participation rate.
total, last, largest: shift of all steps, of the last and of the farthest along the target's
direction. energy: logarithm of the released numbers' squared length. steps: number of steps.
"""

Features = tuple[float, ...]
World = Literal["present", "absent", "twin", "stranger"]


@dataclass(frozen=True)
class ObservedRun:
    """Observations of one run.

    Attributes:
        steps: steps of Opacus's optimizers, () without any.
        statement: None where the loop did not query an accountant.
        size: n, the number of records of a loader; 0 without one.
        records: checksums of the records of a loader, sorted; () where they are not known.
        computed: class of a loader's data set that computes its records; "" for any other.
        explained: whether those steps alone moved the model.
        epochs: passes over the data that steps drew from, unfinished ones included; 0 without a
            loader.
        beside: names and checksums of the model's integer tensors.
        unnoised: steps of an ordinary optimizer on the same model, after the first of them.
        start: checksum of the model before the first step, and of its parts that no step changes.
        released: checksum of all releases.
        values: number of different numbers in the releases.
    """

    steps: tuple[Step, ...]
    statement: LoopStatement | None
    size: int
    records: tuple[str, ...]
    computed: str
    explained: bool
    epochs: int
    beside: tuple[tuple[str, str], ...]
    unnoised: int
    start: str
    released: str
    values: int

    @property
    def samplers(self) -> str:
        return ", then ".join(dict.fromkeys(step.sampling for step in self.steps if step.sampling))


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


@dataclass(frozen=True)
class LoopOrder:
    """What a process audits: a function as MODULE:NAME, and the data that it trains on."""

    function: str
    data: str
    records: int
    target: str
    neighbouring: str
    seed: int
