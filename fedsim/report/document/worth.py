"""How the worth of a model is worded, for each task of `fedsim.learning.training.tasks`."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedsim.learning.training import quality
from fedsim.report.document.wording import (
    DASH,
    beside_accuracy,
    number,
    percent,
    span,
    unless_learnt,
)


@dataclass(frozen=True)
class Worth:
    """What is measured of a model on public records.

    Attributes:
        accuracy: the share that it gets right: of records, or of next tokens.
        loss: the mean, in nats.
        majority: the share that a model gets right which has learnt nothing.
        baseline_loss: the mean loss of such a model; None where only shares are compared.
        loss_interval: of the loss, at 95 %; None where it was not measured.
        least_recall: the class with the least recall, and that; None where it was not measured.
    """

    accuracy: float | None
    loss: float | None
    majority: float
    balanced_accuracy: float | None = None
    area_under_curve: float | None = None
    baseline_loss: float | None = None
    loss_interval: tuple[float, float] | None = None
    least_recall: tuple[str, float] | None = None


class Words(ABC):
    """The words of one task."""

    measure: ClassVar[str]
    """What leads: the name of a measure."""
    use: ClassVar[str]
    """What a model that is loaded maps records to."""

    @abstractmethod
    def value(self, accuracy: float | None, loss: float | None) -> str:
        """Return the value of the measure that leads, as text."""

    @abstractmethod
    def beside(self, found: Worth) -> str:
        """Return what stands beside that value: first of all the baseline."""

    @abstractmethod
    def baseline(self, found: Worth) -> str:
        """Return the baseline alone, as text."""

    @abstractmethod
    def unless_learnt(self, found: Worth, fault: str = "") -> str:
        """Return a warning if the model has learnt nothing, or little; "" otherwise."""

    unit: ClassVar[str] = " nats"
    """Of the loss, behind the number."""

    @abstractmethod
    def predicts(self, classes: int) -> str:
        """Return what the model predicts of a record, as "one of 3 classes"."""


class _Classification(Words):
    measure, use = "accuracy", "records to logits"

    def value(self, accuracy: float | None, loss: float | None) -> str:
        return percent(accuracy)

    def beside(self, found: Worth) -> str:
        return beside_accuracy(
            found.majority, found.balanced_accuracy, found.area_under_curve, found.least_recall
        )

    def baseline(self, found: Worth) -> str:
        return beside_accuracy(found.majority)

    def unless_learnt(self, found: Worth, fault: str = "") -> str:
        return unless_learnt(found.accuracy, found.majority, fault)

    def predicts(self, classes: int) -> str:
        return f"one of {classes} classes"


class _NextToken(Words):
    measure, use = "perplexity", "texts to the mean loss of their next tokens and a share of hits"

    def value(self, accuracy: float | None, loss: float | None) -> str:
        return DASH if loss is None else number(_perplexity(loss))

    def beside(self, found: Worth) -> str:
        between = found.loss_interval and span(
            (_perplexity(found.loss_interval[0]), _perplexity(found.loss_interval[1])), number
        )
        return (
            f"95% interval {between}, " if between else ""
        ) + f"{self.baseline(found)}, next tokens right {percent(found.accuracy)}"

    def baseline(self, found: Worth) -> str:
        least = found.baseline_loss
        return f"unigram baseline {DASH if least is None else number(_perplexity(least))}"

    def unless_learnt(self, found: Worth, fault: str = "") -> str:
        high = found.loss if found.loss_interval is None else found.loss_interval[1]
        if high is not None and found.baseline_loss is not None and high >= found.baseline_loss:
            return (
                "The model has learnt nothing: its perplexity is not shown to be below that of a "
                "unigram model, which sees no context. Start from a network that has learnt from "
                "public texts, train more rounds, or allow less noise."
            )
        if not fault:
            return ""
        return f"The model has learnt little: {fault}. Try more training.rounds."

    def predicts(self, classes: int) -> str:
        return "the next token of a text"


class _Regression(Words):
    unit = ""
    measure, use = (
        "mean absolute error",
        "records to numbers: output / 40 + 0.5 is a share of the range",
    )

    def value(self, accuracy: float | None, loss: float | None) -> str:
        return DASH if accuracy is None else percent(1 - accuracy)

    def beside(self, found: Worth) -> str:
        return f"of the target's range; {self.baseline(found)}"

    def baseline(self, found: Worth) -> str:
        return f"always the median: {percent(1 - found.majority)}"

    def unless_learnt(self, found: Worth, fault: str = "") -> str:
        if found.accuracy is not None and found.accuracy <= found.majority:
            return (
                "The model has learnt nothing: its error is not below that of always saying the "
                "median. Try more training.rounds, another training.clipping-norm, or less noise."
            )
        if not fault:
            return ""
        return f"The model has learnt little: {fault}. Try more training.rounds."

    def predicts(self, classes: int) -> str:
        return "a number"


WORDS: dict[str, Words] = {
    "classification": _Classification(),
    "next-token": _NextToken(),
    "regression": _Regression(),
    "huber": _Regression(),
}
"""By what model.task calls the task."""


def fault_of(confusion: Sequence[Sequence[float]], loss: float | None, before: float | None) -> str:
    """Return a sign that learning failed, which an accuracy above the majority may hide; "" else.

    Args:
        confusion: counts by class and by answer, or their means over models; empty where unknown.
        loss: the mean at the last model.
        before: that at the first model.
    """
    fault = quality.fault(confusion)
    if not fault and loss is not None and before is not None and loss > before:
        return "its loss is above that of the first model"
    return fault


def _perplexity(loss: float) -> float:
    """Return the exponential of a mean loss in nats; infinite where it overflows."""
    return math.exp(loss) if loss < 700 else math.inf
