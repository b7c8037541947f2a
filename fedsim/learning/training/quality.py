"""Measures of a model besides its accuracy, of logits [n, c] or [T, n, c] and labels [n].

A single logit (c = 1) is the log-odds of class 1.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from adversaries.arrays import Floats
from adversaries.statistics.intervals import Interval, clopper_pearson

BOOTSTRAPS = 2000
"""Bootstrap samples for the intervals of a regression's errors."""

NEARLY_EVERY = 0.99
"""A model that answers one class more often than this share does not separate classes."""


@dataclass(frozen=True)
class Share:
    """A share of records, and its exact interval (Clopper and Pearson)."""

    value: float
    interval: Interval

    @classmethod
    def of(cls, counted: int, records: int, confidence: float) -> "Share | None":
        """Return the share of some records; None without records."""
        if not records:
            return None
        return cls(counted / records, clopper_pearson(counted, records, confidence))


@dataclass(frozen=True)
class Confusion:
    """The number of records by label (rows) and answered class (columns), [c][c]."""

    counts: tuple[tuple[int, ...], ...]

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(map(sum, zip(*self.counts, strict=True)))

    def recall(self, label: int, confidence: float) -> Share | None:
        """Return the share of a class's records with the right answer; None without records."""
        return Share.of(self.counts[label][label], sum(self.counts[label]), confidence)

    def precision(self, label: int, confidence: float) -> Share | None:
        """Return the share of right answers among the answers of a class; None without any."""
        return Share.of(self.counts[label][label], self.answers[label], confidence)


def answers_one_class(counts: Sequence[Sequence[float]]) -> bool:
    """Return whether a model answers one class for nearly every record, of several classes."""
    answers, counted = list(map(sum, zip(*counts, strict=True))), sum(map(sum, counts))
    several = max(map(sum, counts), default=0) < counted
    return several and max(answers, default=0) > NEARLY_EVERY * counted


def confusions(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the confusion matrices of T models, float64 [T, c, c]: rows are labels."""
    logits = _two_or_more(logits)
    models, _, classes = logits.shape
    first = torch.arange(models, device=logits.device)[:, None] * classes**2
    cells = first + labels.flatten() * classes + logits.argmax(-1)
    counts = torch.bincount(cells.flatten(), minlength=models * classes**2)
    return counts.reshape(models, classes, classes).double()


def confusion(logits: Tensor, labels: Tensor) -> Confusion:
    """Return the confusion matrix of one model."""
    counts = confusions(logits[None], labels)[0].long().tolist()
    return Confusion(tuple(tuple(row) for row in counts))


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
    Returns: value, low and high end of the mean absolute error, the root mean squared error, and R²
    by 2,000 bootstrap samples of the records. A single record has no interval, so it gives none of
    them; R² is left out if the target is constant, in one sample too.
    Source:
        Efron and Tibshirani, "An introduction to the bootstrap" (1993), section 13.3.
    """
    from scipy.stats import DegenerateDataWarning, bootstrap  # noqa: PLC0415  (slow to import)

    pairs = (predicted.cpu().numpy(), target.cpu().numpy())
    measures: dict[str, tuple[float, float, float]] = {}
    if len(target) < 2:
        return measures
    for name, statistic in ERRORS.items():
        with np.errstate(divide="ignore", invalid="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", DegenerateDataWarning)
            interval = bootstrap(
                pairs,
                statistic,
                paired=True,
                vectorized=True,
                n_resamples=BOOTSTRAPS,
                batch=max(1, 2**22 // len(target)),
                method="percentile",
                random_state=np.random.default_rng(0),
            ).confidence_interval
            value = float(statistic(*pairs, axis=-1))
        found = value, float(interval.low), float(interval.high)
        if np.isfinite(found).all():
            measures[name] = found
    return measures


def _two_or_more(logits: Tensor) -> Tensor:
    if logits.shape[-1] > 1:
        return logits
    return torch.cat([torch.zeros_like(logits), logits], -1)


def majority_share(labels: Tensor) -> float:
    """Return the share of the most frequent label, the accuracy of a model that learned nothing."""
    if not labels.numel():
        return 0.0
    return int(torch.bincount(labels.flatten()).max()) / labels.numel()


def balanced_accuracies(counts: Tensor) -> Tensor:
    """Return the mean recall of matrices [T, c, c] over the classes that have records."""
    of_class = counts.sum(2)
    present = of_class[0] > 0
    return (counts.diagonal(dim1=1, dim2=2) / of_class)[:, present].mean(1)


def areas_under_curve(logits: Tensor, labels: Tensor) -> Tensor | None:
    """Return the area under the ROC curve, float64 [T]; the macro average for several classes.

    For two classes it is the area of class 1; for more the mean of the areas of each class against
    the rest, by its odds. Ties count half; None if all records are of one class. Source: Fawcett,
    "An introduction to ROC analysis" (2006), sections 7 and 9.2.
    """
    logits = _two_or_more(logits).double()
    classes = logits.shape[-1]
    present = labels.unique().tolist()
    if len(present) < 2:
        return None
    areas = []
    for label in [1] if classes == 2 else present:
        others = torch.cat([logits[..., :label], logits[..., label + 1 :]], -1).logsumexp(-1)
        odds = (logits[..., label] - others).nan_to_num().cpu()  # NaN if the model diverged
        positive = (labels == label).cpu()
        ones = int(positive.sum())
        ordered = odds.sort(dim=1).values
        below, up_to = (torch.searchsorted(ordered, odds, right=end) for end in (False, True))
        ranks = (below + up_to + 1).double() / 2  # equal scores share their mean rank
        above = ranks[:, positive].sum(1) - ones * (ones + 1) / 2
        areas.append(above / (ones * (len(positive) - ones)))
    return torch.stack(areas).mean(0)


MOST_CLASSES = 100
"""Largest number of classes with a confusion matrix, whose size is its square."""


def of_models(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return measures of T models, [T, ...] each, by their names."""
    counts = confusions(logits, labels)
    measures = {"balanced_accuracies": balanced_accuracies(counts)}
    if (areas := areas_under_curve(logits, labels)) is not None:
        measures["areas_under_curve"] = areas
    if counts.shape[1] <= MOST_CLASSES:
        measures["confusions"] = counts
    return measures
