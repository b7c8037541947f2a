"""What a task is judged by, and whether a model has learnt anything.

A constant answer reaches an accuracy of 98 % where 98 % of the records are of one class. So the
criterion depends on the classes: `judge` is the only place that decides it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.special

from adversaries.statistics.intervals import Interval, wilson

CONFIDENCE = 0.95

EVEN = 0.95
"""Least evenness (Pielou's J) of even classes."""


@dataclass(frozen=True)
class Measured:
    """Measures of a model on held-out records, or their means over several models.

    Attributes:
        task: model.task.
        accuracy: share of right answers, or 1 - mean absolute error / range of the target.
        majority: the accuracy of the best constant answer, for regression of the median.
        of_class: held-out records of each class; empty if unknown or without classes.
        recalls: share of right answers in each class; empty if unknown, None without records.
        loss, baseline_loss: mean loss of the model and of a unigram model, in nats.
        interval: 95 % interval of the accuracy, or for next tokens of the loss; None for the
            interval that follows from the numbers of records.
    """

    task: str
    records: int
    accuracy: float | None
    majority: float
    loss: float | None = None
    of_class: tuple[int, ...] = ()
    recalls: tuple[float | None, ...] = ()
    balanced_accuracy: float | None = None
    area_under_curve: float | None = None
    baseline_loss: float | None = None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Judged:
    """A model by the criterion of its task.

    Attributes:
        name: "AUC", "balanced accuracy", "accuracy", "mean absolute error" or "perplexity".
        value: None if not measured, or of a model that diverged.
        interval: of the value at 95 %, over held-out records; None if unknown.
        constant: what a constant answer reaches (for perplexity, a unigram model).
        rises: whether larger is better.
    """

    name: str
    value: float | None
    interval: tuple[float, float] | None
    constant: float
    rises: bool = True

    @property
    def has_learnt(self) -> bool:
        """Whether the interval (or the value without one) is better than a constant answer."""
        if self.value is None or math.isnan(self.value):
            return False
        low, high = self.interval or (self.value, self.value)
        return low > self.constant if self.rises else high < self.constant


AUC, BALANCED, ACCURACY = "AUC", "balanced accuracy", "accuracy"
ERROR, PERPLEXITY = "mean absolute error", "perplexity"


def criterion(of_class: Sequence[int]) -> str:
    """Return what a classification is judged by, from the records of each class.

    Returns: "AUC" for two classes, which shows most of what little a private model may have learnt;
    of more, "balanced accuracy" if they are uneven, else "accuracy". Source: Pielou, "The
    measurement of diversity in different types of biological collections" (1966): evenness is the
    entropy of the classes, divided by its largest value; corrected for few records as in Miller,
    "Note on the bias of information estimates" (1955).
    """
    counts = np.array(of_class, dtype=np.float64)
    if len(counts) < 2 or np.count_nonzero(counts) < 2:
        return ACCURACY
    if len(counts) == 2:
        return AUC
    records = counts.sum()
    entropy = scipy.special.entr(counts / records).sum()
    entropy += (np.count_nonzero(counts) - 1) / (2 * records)  # few records seem less even
    return ACCURACY if entropy >= EVEN * math.log(len(counts)) else BALANCED


def judge(measured: Measured) -> Judged:
    """Return a model by the criterion of its task, and what a constant answer reaches."""
    value, constant, interval = measured.accuracy, measured.majority, measured.interval
    if measured.task == "next-token":
        of_loss = None if interval is None else (_exp(interval[0]), _exp(interval[1]))
        value = None if measured.loss is None else _exp(measured.loss)
        least = math.inf if measured.baseline_loss is None else _exp(measured.baseline_loss)
        return Judged(PERPLEXITY, value, of_loss, least, rises=False)
    if measured.task != "classification":
        error = None if value is None else 1 - value
        ends = None if interval is None else (1 - interval[1], 1 - interval[0])
        return Judged(ERROR, error, ends, 1 - constant, rises=False)
    name, found = criterion(measured.of_class), classified(measured)
    if name == AUC and AUC not in found:
        name = BALANCED
    # A balanced accuracy without its interval proves no learning.
    if name == BALANCED and BALANCED in found and found[BALANCED].interval is None:
        name = ACCURACY
    return found.get(name, found[ACCURACY])


def classified(measured: Measured) -> dict[str, Judged]:
    """Return the measures of a classification by name, those that are known."""
    value, interval = measured.accuracy, measured.interval
    if interval is None and value is not None and measured.records and not math.isnan(value):
        interval = wilson(value, measured.records, CONFIDENCE).ends
    found = {ACCURACY: Judged(ACCURACY, value, interval, measured.majority)}
    if measured.balanced_accuracy is not None:
        present = [
            (share, count)
            for share, count in zip(measured.recalls, measured.of_class, strict=False)
            if share is not None and count
        ]
        between = mean_of_shares(present).ends if present else None
        classes = sum(count > 0 for count in measured.of_class)
        found[BALANCED] = Judged(BALANCED, measured.balanced_accuracy, between, 1 / classes)
    area, of_class = measured.area_under_curve, measured.of_class
    if area is not None:
        two = len(of_class) == 2 and all(of_class) and not math.isnan(area)
        found[AUC] = Judged(AUC, area, area_interval(area, *of_class).ends if two else None, 0.5)
    return found


def area_interval(area: float, negatives: int, positives: int) -> Interval:
    """Return the 95 % interval of an area under the ROC curve, in [0, 1].

    It contains 0.5 if the rank-sum test does not reject that the scores of both classes have one
    distribution. negatives, positives: records of each class, at least 1.
    Source: Newcombe, "Confidence intervals for an effect size measure based on the Mann-Whitney
    statistic, part 2" (2006), method 5: the values whose standard error, by Hanley and McNeil
    (1982), reaches the measured area.
    """
    from scipy.optimize import brentq  # noqa: PLC0415  (slow to import)

    reach = float(scipy.special.ndtri((1 + CONFIDENCE) / 2))
    mean_count = (negatives + positives) / 2 - 1

    def below(measured: float) -> float:
        def apart(value: float) -> float:
            other = 1 - value
            more = mean_count * (other / (2 - value) + value / (1 + value))
            return (
                measured
                - value
                - reach * math.sqrt(value * other * (1 + more) / (negatives * positives))
            )

        start = min(measured, 1 - 1e-12)  # at 1 the standard error is 0
        if apart(start) >= 0 or measured <= 0:
            return max(0.0, start)
        return float(brentq(apart, 0.0, start))

    return Interval(below(area), 1 - below(1 - area), CONFIDENCE)


def mean_of_shares(shares: Sequence[tuple[float, int]]) -> Interval:
    """Return the 95 % interval of the mean of independent shares, each with its records.

    Source: Zou and Donner, "Construction of confidence limits about effect measures" (2008), with
    Wilson's interval of each share.
    """
    values = np.array([share for share, _ in shares])
    ends = np.array([wilson(share, records, CONFIDENCE).ends for share, records in shares])
    low, high = (math.sqrt(np.square(values - end).sum()) / len(values) for end in ends.T)
    mean = float(values.mean())
    return Interval(max(0.0, mean - low), min(1.0, mean + high), CONFIDENCE)


def _exp(loss: float) -> float:
    return math.exp(min(loss, 700))
