"""Measures of a classifier beside its accuracy, for classes of uneven size."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import bootstrap, rankdata
from torch import Tensor

from adversaries.statistics.intervals import Interval, clopper_pearson

Floats = npt.NDArray[np.float64]

BINS = 10
"""Bins of the calibration curve, of equal width in the probability of the likeliest class."""

BOOTSTRAPS = 2000
"""Samples that the intervals of a regression's errors are of."""

NEARLY_EVERY = 0.99
"""The share of answers for one class above which a model tells no classes apart."""


@dataclass(frozen=True)
class Share:
    """A share of records, and its exact interval (Clopper and Pearson)."""

    value: float
    interval: Interval

    @classmethod
    def of(cls, counted: int, records: int, confidence: float) -> "Share | None":
        """Return the share of some records; None of none."""
        if not records:
            return None
        return cls(counted / records, clopper_pearson(counted, records, confidence))


@dataclass(frozen=True)
class Confusion:
    """How often a model answered which class for records of which class.

    Attributes:
        counts: [c][c] whole numbers; a row for each label, a column for each answer.
    """

    counts: tuple[tuple[int, ...], ...]

    @property
    def answers(self) -> tuple[int, ...]:
        """How often each class was answered."""
        return tuple(map(sum, zip(*self.counts, strict=True)))

    def recall(self, label: int, confidence: float) -> Share | None:
        """Return the share of a class's records that is right; None of a class without records."""
        return Share.of(self.counts[label][label], sum(self.counts[label]), confidence)

    def precision(self, label: int, confidence: float) -> Share | None:
        """Return the share of a class's answers that is right; None of one never answered."""
        return Share.of(self.counts[label][label], self.answers[label], confidence)

    def fault(self) -> str:
        """Return in which way the answers show that nothing was learnt; "" for none."""
        counted = sum(map(sum, self.counts))
        right = sum(row[label] for label, row in enumerate(self.counts))
        most = max(map(sum, self.counts), default=0)
        if most == counted:  # there is one class, which a model may well answer
            return ""
        if max(self.answers) > NEARLY_EVERY * counted:
            return "it answers one class for nearly every record"
        return "it is no more accurate than the majority class" if right <= most else ""


@dataclass(frozen=True)
class Bin:
    """Records whose likeliest class has about one probability.

    Attributes:
        records: how many.
        confidence: the mean probability of their likeliest class.
        accuracy: the share of them that is right.
    """

    records: int
    confidence: float
    accuracy: float


def confusion(logits: Tensor, labels: Tensor) -> Confusion:
    """Return the confusion matrix of one model.

    logits: [n, c]; a single one (c = 1) is the log-odds of class 1.
    labels: [n] integers.
    """
    logits = _two_or_more(logits)
    classes = logits.shape[1]
    cells = labels.flatten().cpu() * classes + logits.argmax(1).cpu()
    counts = torch.bincount(cells, minlength=classes**2).reshape(classes, classes)
    return Confusion(tuple(tuple(row) for row in counts.tolist()))


def calibration(logits: Tensor, labels: Tensor) -> tuple[Bin, ...]:
    """Return the calibration curve of one model: the bins that have records.

    logits: [n, c]; a single one (c = 1) is the log-odds of class 1.
    labels: [n] integers.

    Source:
        Guo et al., "On calibration of modern neural networks" (2017), section 2.
    """
    sure, answers = _two_or_more(logits).double().softmax(1).max(1)
    right = (answers == labels).double()
    bins = (sure * BINS).long().clamp(max=BINS - 1)
    found = [(bins == number) for number in range(BINS)]
    return tuple(
        Bin(int(chosen.sum()), float(sure[chosen].mean()), float(right[chosen].mean()))
        for chosen in found
        if chosen.any()
    )


def _mean_absolute(predicted: Floats, target: Floats, axis: int) -> Floats:
    return np.asarray(np.abs(predicted - target).mean(axis))


def _root_mean_squared(predicted: Floats, target: Floats, axis: int) -> Floats:
    return np.asarray(np.sqrt(np.square(predicted - target).mean(axis)))


def _r_squared(predicted: Floats, target: Floats, axis: int) -> Floats:
    return np.asarray(1 - np.square(predicted - target).mean(axis) / target.var(axis))


ERRORS = {
    "mean_absolute": _mean_absolute,
    "root_mean_squared": _root_mean_squared,
    "r_squared": _r_squared,
}
"""Measures of a regression by name: predictions and targets [..., n] -> [...]."""


def errors(predicted: Tensor, target: Tensor) -> dict[str, tuple[float, float, float]]:
    """Return measures of a regression, each with its interval at 95 %.

    predicted, target: shares of the target's range, float64 [n].
    Returns: value, low and high end of the mean absolute error, the root of the mean squared error,
    and R², the share of the target's variance that is explained; without R² where the target does
    not vary. The intervals are percentiles of 2,000 bootstrap samples of the records.

    Source:
        Efron and Tibshirani, "An introduction to the bootstrap" (1993), section 13.3.
    """
    pairs = (predicted.cpu().numpy(), target.cpu().numpy())
    found = {}
    for name, statistic in ERRORS.items():
        if name == "r_squared" and np.ptp(pairs[1]) == 0:
            continue
        between = bootstrap(
            pairs,
            statistic,
            paired=True,
            vectorized=True,
            n_resamples=BOOTSTRAPS,
            batch=max(1, 2**22 // len(target)),
            method="percentile",
            random_state=np.random.default_rng(0),
        ).confidence_interval
        found[name] = (float(statistic(*pairs, axis=-1)), float(between.low), float(between.high))
    return found


def _two_or_more(logits: Tensor) -> Tensor:
    """Return logits of which there is one for each class."""
    return torch.cat([torch.zeros_like(logits), logits], 1) if logits.shape[1] == 1 else logits


def majority_share(labels: Tensor) -> float:
    """Return the share of the most frequent label: the accuracy of a model that learnt nothing.

    labels: [n] integers.
    Returns: the share; 0 of no records.
    """
    if not labels.numel():
        return 0.0
    return int(torch.bincount(labels.flatten()).max()) / labels.numel()


def balanced_accuracy(correct: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over the classes of the share of their records that is right, float64 [T].

    correct: bool [T, n].
    labels: [n] integers, at least one; classes without a record do not count.
    """
    present = [correct[:, labels == label].double().mean(1) for label in labels.unique()]
    return torch.stack(present).mean(0)


SAME_ODDS = 3
"""Decimals of a natural log of odds beyond which two records have the same.

Losses in single precision tell odds from 0.05 to 0.95 apart to about six decimals.
"""


def area_under_curve(losses: Tensor, labels: Tensor, classes: int) -> Tensor | None:
    """Return the area under the ROC curve of two classes, float64 [T].

    With two classes the loss -log p(label) tells the odds of class 1. Ties count half.

    losses: cross-entropy, [T, n].
    labels: [n] integers.
    Returns: the areas; None for other than two classes, or where one of them has no record.
    """
    positive = labels == 1
    ones, zeros = int(positive.sum()), int((~positive).sum())
    if classes != 2 or not ones or not zeros:
        return None
    right = losses.double().clamp(min=torch.finfo(torch.float64).tiny)
    # log p/(1 - p) of the label's p = exp(-loss), and of class 1.
    odds = -right - torch.log(-torch.expm1(-right))
    # The losses have single precision: a model that says the same of all would rank the labels by
    # the rounding of log p and log(1 - p).
    scores = torch.where(positive, odds, -odds).round(decimals=SAME_ODDS).cpu().numpy()
    ranks = torch.from_numpy(rankdata(scores, axis=1))
    above = ranks[:, positive.cpu()].sum(1) - ones * (ones + 1) / 2
    return above / (ones * zeros)
