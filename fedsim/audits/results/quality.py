"""How well models do on each class, and how sure they are: one model, or those of many trials.

`Quality` is part of report.json. The card of a model uses the same blocks.
"""

from dataclasses import dataclass

from fedsim.audits.results.numbers import Ends, Real


@dataclass(frozen=True)
class Proportion:
    """A share with its interval."""

    value: Real
    """In [0, 1]."""
    interval: Ends | None
    """At the confidence of the whole; None where the variation is unknown."""


@dataclass(frozen=True)
class OfClass:
    """Measurements of one class."""

    name: str
    """Name of the class; its number where the data set has no names."""
    records: int
    """Held-out records of the class."""
    recall: Proportion | None
    """Share of the class's records that the model gets right; None where it has no records."""
    precision: Proportion | None
    """Share of right answers among the answers of this class; None where there are none."""


@dataclass(frozen=True)
class SureRecords:
    """Records of one bin of the calibration curve, by the probability of their likeliest class."""

    records: Real
    """Number of records; the mean over the models of several trials."""
    confidence: Real
    """Mean probability of their likeliest class."""
    accuracy: Proportion
    """Share of them that the model gets right."""


@dataclass(frozen=True)
class Quality:
    """How well models do on each class, and how sure they are, on held-out records."""

    confidence: Real
    """Confidence of every interval here, in (0, 1)."""
    classes: list[OfClass]
    """Classes, in the order of the labels."""
    confusion: list[list[Real]]
    """Records by class (rows) and by answer (columns); the mean over the models of several
    trials."""
    calibration: list[SureRecords]
    """Bins that have records, rising."""

    @property
    def least_recall(self) -> tuple[str, float] | None:
        """The class with the least recall, and that recall; None where no class has a record."""
        recalls = [(each.name, each.recall.value) for each in self.classes if each.recall]
        return min(recalls, key=lambda one: one[1], default=None)
