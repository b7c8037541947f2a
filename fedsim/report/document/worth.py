"""The worth of a model in words and blocks, for each task of `fedsim.learning.training.tasks`."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedsim.audits.results.numbers import Proportion, Quality
from fedsim.learning.training import quality
from fedsim.report.document.blocks import Block, Prose, tabulated
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
    """Measures of a model on public records.

    Attributes:
        accuracy: share of right answers, for records or next tokens.
        majority: share of right answers of a model that has learnt nothing.
        baseline_loss: mean loss of a model that has learnt nothing; None if shares are compared.
        loss_interval: 95 % interval of the loss; None if not measured.
        least_recall: the class with the least recall, and its recall; None if not measured.
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
    use: ClassVar[str]
    """Inputs and outputs of a loaded model."""

    @abstractmethod
    def value(self, accuracy: float | None, loss: float | None) -> str:
        """Return the value of the leading measure, as text."""

    @abstractmethod
    def beside(self, worth: Worth) -> str:
        """Return the other measures as text, the baseline first."""

    @abstractmethod
    def baseline(self, worth: Worth) -> str:
        """Return the baseline alone, as text."""

    @abstractmethod
    def unless_learnt(self, worth: Worth, fault: str = "") -> str:
        """Return a warning if the model is no better than its baseline, or learnt little."""

    unit: ClassVar[str] = " nats"

    @abstractmethod
    def predicts(self, classes: int) -> str:
        """Return the kind of prediction, such as "one of 3 classes"."""


class _Classification(Words):
    measure, use = "accuracy", "records to logits"

    def value(self, accuracy: float | None, loss: float | None) -> str:
        return percent(accuracy)

    def beside(self, worth: Worth) -> str:
        return beside_accuracy(
            worth.majority, worth.balanced_accuracy, worth.area_under_curve, worth.least_recall
        )

    def baseline(self, worth: Worth) -> str:
        return beside_accuracy(worth.majority)

    def unless_learnt(self, worth: Worth, fault: str = "") -> str:
        return unless_learnt(worth.accuracy, worth.majority, fault, worth.area_under_curve)

    def predicts(self, classes: int) -> str:
        return f"one of {classes} classes"


class _NextToken(Words):
    measure, use = (
        "perplexity",
        "texts to the mean loss of their next tokens and the share of right ones",
    )

    def value(self, accuracy: float | None, loss: float | None) -> str:
        return DASH if loss is None else number(_perplexity(loss))

    def beside(self, worth: Worth) -> str:
        between = worth.loss_interval and span(
            (_perplexity(worth.loss_interval[0]), _perplexity(worth.loss_interval[1])), number
        )
        return (
            f"95% interval {between}, " if between else ""
        ) + f"{self.baseline(worth)}, {percent(worth.accuracy)} of next tokens right"

    def baseline(self, worth: Worth) -> str:
        least = worth.baseline_loss
        return f"unigram baseline {DASH if least is None else number(_perplexity(least))}"

    def unless_learnt(self, worth: Worth, fault: str = "") -> str:
        high = worth.loss if worth.loss_interval is None else worth.loss_interval[1]
        if high is not None and worth.baseline_loss is not None and high >= worth.baseline_loss:
            return (
                "The perplexity is not shown to be below the perplexity of a unigram model, which "
                "sees no context. Start from a network that "
                "was trained on public texts, train more rounds, or use less noise."
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

    def beside(self, worth: Worth) -> str:
        return f"of the target's range; {self.baseline(worth)}"

    def baseline(self, worth: Worth) -> str:
        return f"always answering the median: {percent(1 - worth.majority)}"

    def unless_learnt(self, worth: Worth, fault: str = "") -> str:
        if worth.accuracy is not None and worth.accuracy <= worth.majority:
            return (
                "The error is not below the error of always answering the median. Try more "
                "training.rounds, another training.clipping-norm, or less noise."
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
"""By the name of the task in model.task."""


def fault_of(confusion: Sequence[Sequence[float]], loss: float | None, before: float | None) -> str:
    """Return a sign that learning failed although the accuracy is above the majority, or ""."""
    fault = quality.fault(confusion)
    if not fault and loss is not None and before is not None and loss > before:
        return "its loss is above the loss of the first model"
    return fault


def _perplexity(loss: float) -> float:
    return math.exp(loss) if loss < 700 else math.inf


MANY_CLASSES = 30


def blocks(quality: Quality, named: Callable[[str], str] = str) -> Iterator[Block]:
    """Yield recall and precision of each class, the confusion matrix and the calibration curve."""
    names = [named(each.name) for each in quality.classes]
    rows = [
        [name, f"{each.records:,}", share(each.recall), share(each.precision)]
        for name, each in zip(names, quality.classes, strict=True)
    ]
    yield Prose(f"By class, with intervals at {percent(quality.confidence)}:")
    yield tabulated(["class", "records", "recall", "precision"], rows)
    if len(names) <= MANY_CLASSES:
        yield Prose("Records by class (rows) and by the model's answer (columns):")
        counts = [
            [name, *map(_count, row)] for name, row in zip(names, quality.confusion, strict=True)
        ]
        yield tabulated(["class", *names], counts)
    yield Prose("Confidence of the model, and its share of right answers:")
    bins = [
        [percent(each.confidence), share(each.accuracy), _count(each.records)]
        for each in quality.calibration
    ]
    yield tabulated(["confidence", "right", "records"], bins)


def share(proportion: Proportion | None) -> str | None:
    if proportion is None:
        return None
    between = span(proportion.interval, percent)
    return f"{percent(proportion.value)} ({between})" if between else percent(proportion.value)


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"
