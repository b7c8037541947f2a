"""How good models are on held-out records, by the criterion of their task."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from adversaries.arrays import Floats
from adversaries.statistics.intervals import mean_interval
from fedsim.game.federation import Federation
from fedsim.learning.data.dataset import STEPS
from fedsim.learning.training import criterion, regression_and_text, tasks
from fedsim.learning.training.criterion import AUC, BALANCED, PERPLEXITY, Judged, Measured
from fedsim.learning.training.regression_and_text import Regression


@dataclass(frozen=True)
class Utility:
    """The models of one setting.

    Attributes:
        criterion: the mean; its 95 % interval covers held-out records and spread of trainings.
        measures: "accuracy", "balanced accuracy" and "AUC" of a classification, with such
            intervals.
        spread: half of Student's interval of the mean over trainings; infinite for one training.
        least_recall: the number of the class that is found least often, and how often.
    """

    criterion: Judged
    measures: Mapping[str, Judged]
    trainings: int
    spread: float
    least_recall: tuple[str, float] | None

    def is_precise(self, reach: float) -> bool:
        """Return whether more trainings would not help: the spread is small, or the least error."""
        low, high = self.criterion.interval or (0.0, 0.0)
        return self.spread <= max(reach, (high - low) / 6)

    @property
    def gain(self) -> float:
        """The criterion, with its sign changed if smaller is better; -inf if not measured."""
        value = self.criterion.value
        if value is None or math.isnan(value):
            return -math.inf
        return value if self.criterion.rises else -value

    @property
    def shown(self) -> str:
        value = self.criterion.value
        return f"{self.criterion.name} {math.nan if value is None else value:.3f}"

    def among(self, measure: str, settings: int) -> Judged | None:
        """Return a measure whose interval holds together with those of other settings at 95 %.

        settings: their number (Bonferroni). The reach grows as that of a normal interval does.
        """
        judged = self.measures.get(measure)
        if judged is None or judged.interval is None or judged.value is None:
            return None
        alone = 1 - criterion.CONFIDENCE
        wider = float(ndtri(alone / 2 / settings) / ndtri(alone / 2))
        low, high = (judged.value + wider * (end - judged.value) for end in judged.interval)
        return replace(judged, interval=(low, high))

    def reaches(self, measure: str, least: float, settings: int = 1) -> bool | None:
        """Return whether a measure is at least `least`; None if its interval contains `least`."""
        judged = self.among(measure, settings)
        low, high = (judged and judged.interval) or (-math.inf, math.inf)
        return True if low >= least else False if high < least else None


def fitted(loaded: Federation) -> Tensor:
    """Return a linear model of a table without privacy, by scikit-learn, float32 [1, P].

    It is a logistic regression of the records of D, or the least squares of a number.
    """
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415  (slow)
    from sklearn.linear_model import LinearRegression, LogisticRegression  # noqa: PLC0415  (slow)

    features, labels = loaded.members(np.arange(len(loaded.client_of)))
    classes = loaded.split.dataset.classes
    weights = np.zeros((classes, features.shape[1])), np.zeros(classes)
    if isinstance(tasks.task_of(loaded.model), Regression):
        target = regression_and_text.SPAN * (labels.numpy() / STEPS - 0.5)
        model = LinearRegression().fit(features.numpy(), target)
        found = model.coef_.reshape(1, -1), np.atleast_1d(model.intercept_)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # near enough to compare with
            model = LogisticRegression(max_iter=1000).fit(features.numpy(), labels.numpy())
        found = model.coef_, model.intercept_
        if len(found[1]) == 1 < classes:  # two classes have one row of coefficients
            found = (
                np.concatenate([-found[0], found[0]]) / 2,
                np.concatenate([-found[1], found[1]]) / 2,
            )
    rows = model.classes_ if hasattr(model, "classes_") else [0]
    weights[0][rows], weights[1][rows] = found
    return torch.tensor(np.concatenate([weights[0].ravel(), weights[1]]), dtype=torch.float32)[None]


def measure(loaded: Federation, models: Tensor) -> list[dict[str, Any]]:
    """Return the measures of models [T, P] on the held-out records, a row for each, for JSON."""
    features, labels = loaded.held_out()
    task = tasks.task_of(loaded.model)
    losses, scores = loaded.evaluate(models, features, labels)
    mean = partial(task.mean, loaded.model, features=features)
    rows: list[dict[str, Any]] = [
        {"accuracy": score, "loss": loss}
        for score, loss in zip(mean(scores).tolist(), mean(losses).tolist(), strict=True)
    ]
    if task.name != "classification":
        values = scores if isinstance(task, Regression) else losses
        weights = torch.ones(len(features), dtype=torch.float64)
        if isinstance(task, regression_and_text.NextToken):
            weights = task.weights(loaded.model, features)
        for row, each in zip(rows, values.double(), strict=True):
            between = regression_and_text.ratio_interval(each, weights)
            row["interval"] = between and [*between.ends]
        return rows
    found = loaded.measures(models)
    for name, key in (("balanced_accuracies", "balanced"), ("areas_under_curve", "area")):
        for row, value in zip(rows, found.get(name, torch.empty(0)).tolist(), strict=False):
            row[key] = value
    if (counts := found.get("confusions")) is not None:
        recalls = counts.diagonal(dim1=1, dim2=2) / counts.sum(2)  # NaN for an absent class
        for row, value in zip(rows, recalls.tolist(), strict=True):
            row["recalls"] = value
    return [_without_nan(row) for row in rows]


def _without_nan(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with None for NaN: a class without records, or a model that diverged."""

    def number(value: float) -> float | None:
        return None if math.isnan(value) else value

    return {
        name: [number(each) for each in value]
        if isinstance(value, list)
        else value and number(value)
        for name, value in row.items()
    }


def utility(loaded: Federation, rows: Sequence[Mapping[str, Any]]) -> Utility:
    """Return the utility of a setting from the rows of its trainings."""
    task = tasks.task_of(loaded.model).name
    counted = [row["recalls"] for row in rows if "recalls" in row]
    recalls = np.array(counted, dtype=np.float64).reshape(len(rows), -1)  # None becomes NaN
    by_class: Floats = recalls.mean(0)
    measured = Measured(
        task=task,
        records=len(loaded.split.held_out),
        accuracy=_mean(rows, "accuracy"),
        majority=loaded.baseline["majority"],
        loss=_mean(rows, "loss"),
        of_class=tuple(loaded.of_class),
        recalls=tuple(None if np.isnan(each) else float(each) for each in by_class),
        balanced_accuracy=_mean(rows, "balanced"),
        area_under_curve=_mean(rows, "area"),
        baseline_loss=loaded.baseline.get("baseline_loss"),
        interval=_mean_interval(rows),
    )
    judged = criterion.judge(measured)
    measures = criterion.classified(measured) if task == "classification" else {}
    spread = _spread(rows, judged.name)
    return Utility(
        criterion=_wider(judged, spread),
        measures={name: _wider(each, _spread(rows, name)) for name, each in measures.items()},
        trainings=len(rows),
        spread=spread,
        least_recall=min(
            (
                (str(label), share)
                for label, share in enumerate(measured.recalls)
                if share is not None
            ),
            key=lambda pair: pair[1],
            default=None,
        ),
    )


COLUMNS = {AUC: "area", BALANCED: "balanced", PERPLEXITY: "loss"}
"""Columns of `measure` by the name of a measure; of others, "accuracy"."""


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Return the mean; None if a training has no such number, such as one that diverged."""
    values = [row[name] for row in rows if row.get(name) is not None]
    return float(np.mean(values)) if len(values) == len(rows) else None


def _spread(rows: Sequence[Mapping[str, Any]], measure: str) -> float:
    column = COLUMNS.get(measure, "accuracy")
    values = np.array([row[column] for row in rows if row.get(column) is not None])
    if measure == PERPLEXITY:
        values = np.exp(np.minimum(values, 700))
    if len(values) < max(2, len(rows)):
        return math.inf
    interval = mean_interval(values, criterion.CONFIDENCE)
    return (interval.high - interval.low) / 2


def _mean_interval(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float] | None:
    """Return the mean ends of the trainings' intervals over records; None where one has none."""
    intervals = [row.get("interval") for row in rows]
    if any(each is None for each in intervals):
        return None
    low, high = np.mean(np.array(intervals, dtype=np.float64), axis=0).tolist()
    return low, high


def _wider(judged: Judged, spread: float) -> Judged:
    """Return the judgement with an interval for the records and the trainings, both at random.

    The two errors are independent, so that the squares of their reaches add up.
    """
    if judged.interval is None or judged.value is None:
        return judged
    below, above = (math.hypot(end - judged.value, spread) for end in judged.interval)
    return replace(judged, interval=(judged.value - below, judged.value + above))
