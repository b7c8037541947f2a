"""What clients' own records say of a model, under noise: part of its card."""

from dataclasses import dataclass

from fedsim.audits.results.numbers import Real
from fedsim.audits.results.quality import OfClass


@dataclass(frozen=True)
class ClientMeasures:
    """A client's confusion matrix of the trained model, on records that it held back."""

    client: int
    """Its number."""
    epsilon: Real
    """What this costs a record that was held back, over all attempts at the training; each answer
    is charged to the client's ledger."""
    confusion: list[list[int]]
    """Records by class, a row each, and by the answer, each with discrete Laplace noise; a count
    may be below 0."""
    classes: list[OfClass]
    """Recall and precision of each class, with intervals that include the noise."""
