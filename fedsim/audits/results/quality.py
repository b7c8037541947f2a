"""How good models are at each class, and how sure: of one model, or of the models of many trials.

`Quality` stands in report.json; the card of a model is shown by the same blocks.
"""

from dataclasses import dataclass

from fedsim.audits.results.numbers import Ends, Real


@dataclass(frozen=True)
class Proportion:
    """A share with its interval."""

    value: Real
    """In [0, 1]."""
    interval: Ends | None
    """At the confidence of the whole; None where nothing says how much it varies."""


@dataclass(frozen=True)
class OfClass:
    """What is measured of one class."""

    name: str
    """Its number where a data set has no names."""
    records: int
    """Of the class, among those held out."""
    recall: Proportion | None
    """The share of its records that is right; None where it has none."""
    precision: Proportion | None
    """The share of its answers that is right; None where it is never answered."""


@dataclass(frozen=True)
class SureRecords:
    """Records whose likeliest class has about one probability: a bin of the calibration curve."""

    records: Real
    """How many; the mean over the models of several trials."""
    confidence: Real
    """The mean probability of their likeliest class."""
    accuracy: Proportion
    """The share of them that is right."""


@dataclass(frozen=True)
class Quality:
    """How good models are at each class, and how sure, on records that nobody trained on."""

    confidence: Real
    """Of every interval here, in (0, 1)."""
    classes: list[OfClass]
    """In the order of the labels."""
    confusion: list[list[Real]]
    """Records by class, a row each, and by the answer; the mean over the models of several
    trials."""
    calibration: list[SureRecords]
    """The bins that have records, rising."""

    @property
    def least_recall(self) -> tuple[str, float] | None:
        """The class with the least recall, and that; None where no class has a record."""
        known = [(each.name, each.recall.value) for each in self.classes if each.recall]
        return min(known, key=lambda one: one[1], default=None)
