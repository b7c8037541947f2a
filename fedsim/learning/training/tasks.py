"""Tasks: the loss of a record, the measures of a model, and its baseline."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from adversaries.errors import InputError
from adversaries.registry import lookup
from fedsim.common.by_use import ByUse
from fedsim.common.device import at_least_float32


def per_example(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy, in nats, [...], of logits [..., c]; c = 1: log-odds of class 1."""
    # bfloat16 has only eight bits of precision, too few for a log-sum-exp.
    logits = at_least_float32(logits)
    if logits.shape[-1] == 1:
        targets = labels.to(logits.dtype)
        return functional.binary_cross_entropy_with_logits(
            logits.squeeze(-1), targets, reduction="none"
        )
    rows = logits.reshape(-1, logits.shape[-1])
    return functional.cross_entropy(rows, labels.reshape(-1), reduction="none").reshape(
        labels.shape
    )


def correct(logits: Tensor, labels: Tensor) -> Tensor:
    """Return whether the likeliest class of logits [..., c] is the label, bool [...]."""
    if logits.shape[-1] == 1:
        return (logits.squeeze(-1) > 0) == labels.bool()
    return logits.argmax(-1) == labels


if TYPE_CHECKING:  # SciPy, which a client's process does not need
    from fedsim.learning.data.dataset import TargetRange
    from fedsim.learning.training.predictions import PredictedValues

    Meaning = Sequence[str] | TargetRange
    """The names of the classes that a network's outputs stand for, or the range of a number."""


def module(name: str) -> Any:
    """Return a module of this package, which only a process that evaluates or predicts imports."""
    return import_module(f"fedsim.learning.training.{name}")


@dataclass(frozen=True)
class Baseline:
    """Score in [0, 1] and mean loss, in nats, of a model that has learned nothing."""

    score: float
    loss: float | None = None


class Task(ABC):
    """The purpose of a network."""

    name: ClassVar[str]
    """Its name in model.task."""

    @abstractmethod
    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each record, [...], at least float32, by outputs [..., c]."""

    def shares_of_norm(self, labels: Tensor) -> Tensor | None:
        """Return the factor of each record's clipped gradient, float64 [...], in (0, 1].

        None: 1 for all.
        """
        return None

    @abstractmethod
    def score(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the quality of each answer, [...]: a share in [0, 1], or whether it is right."""

    @abstractmethod
    def widths(self, classes: int) -> tuple[int, ...]:
        """Return the allowed numbers of outputs. Raises InputError for such a number of classes."""

    @abstractmethod
    def predictions(
        self, model: nn.Module, outputs: Tensor, features: Tensor, meaning: "Meaning"
    ) -> "PredictedValues":
        """Return the predictions in the outputs [N, c] for records with these features."""

    @abstractmethod
    def baseline(self, model: nn.Module, features: Tensor, labels: Tensor) -> Baseline:
        """Return the baseline of a model that has learned nothing."""

    def mean(self, model: nn.Module, values: Tensor, features: Tensor) -> Tensor:
        """Return the mean over records of losses or scores [T, n], float64 [T]."""
        return values.double().mean(1)

    def of_trials(self, outputs: Callable[[], Tensor], labels: Tensor) -> dict[str, Tensor]:
        """Return further measures of T models, [T, ...] each, by their names in a transcript."""
        return {}

    def of_model(
        self, model: nn.Module, outputs: Tensor, features: Tensor, labels: Tensor
    ) -> dict[str, Any]:
        """Return further measures of the final model, as JSON, by outputs [n, c]."""
        return {}


@dataclass(frozen=True)
class Classification(Task):
    """One of several classes for each record, by cross-entropy.

    With public shares of the classes, `priors`, a record's clipped gradient is multiplied by the
    share of the rarest class over the share of its own. A weight in the loss would be undone: after
    clipping, the gradients of both classes are equally long.
    """

    name = "classification"
    priors: tuple[float, ...] = ()

    def shares_of_norm(self, labels: Tensor) -> Tensor | None:
        if not self.priors:
            return None
        # At most 1, rounding included: a correctly rounded quotient of x <= y is at most 1.
        shares = torch.tensor(self.priors, dtype=torch.float64, device=labels.device)
        return (shares.min() / shares)[labels]

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return per_example(outputs, labels)

    def score(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return correct(outputs, labels)

    def widths(self, classes: int) -> tuple[int, ...]:
        if self.priors and len(self.priors) != classes:
            raise InputError(
                f"model.class-priors names {len(self.priors)} shares, but there are {classes} "
                "classes; give one for each"
            )
        if classes < 2:
            raise InputError(
                "model.task is classification, but the records have no classes; name the classes "
                'in the schema, or set model.task = "next-token"'
            )
        return (classes, 1) if classes == 2 else (classes,)

    def predictions(
        self, model: nn.Module, outputs: Tensor, features: Tensor, meaning: "Meaning"
    ) -> "PredictedValues":
        return module("predictions").classified(outputs, meaning)

    def baseline(self, model: nn.Module, features: Tensor, labels: Tensor) -> Baseline:
        return Baseline(module("quality").majority_share(labels))

    def of_trials(self, outputs: Callable[[], Tensor], labels: Tensor) -> dict[str, Tensor]:
        return module("quality").of_models(outputs(), labels)

    def of_model(
        self, model: nn.Module, outputs: Tensor, features: Tensor, labels: Tensor
    ) -> dict[str, Any]:
        return {"confusion": module("quality").confusion(outputs, labels).counts}


CLASSIFICATION = Classification()

TASKS: Mapping[str, Task] = ByUse(
    {
        "classification": "fedsim.learning.training.tasks:CLASSIFICATION",
        "next-token": "fedsim.learning.training.regression_and_text:NEXT_TOKEN",
        "regression": "fedsim.learning.training.regression_and_text:REGRESSION",
        "huber": "fedsim.learning.training.regression_and_text:HUBER",
    }
)
"""By their names in model.task."""


def named(name: str, class_priors: str = "") -> Task:
    """Return the task of a name and of model.class-priors.

    Raises InputError for bad ones.
    """
    if not class_priors:
        return lookup(TASKS, name, "model.task")
    try:
        priors = tuple(float(share) for share in class_priors.split(","))
    except ValueError:
        priors = ()
    if not (priors and min(priors) > 0 and math.isclose(sum(priors), 1, abs_tol=0.01)):
        raise InputError(
            f"model.class-priors is '{class_priors}'; give a share above 0 for each class, and "
            'let them sum to 1, such as "0.75,0.25"'
        )
    return Classification(priors)


def task_of(model: nn.Module) -> Task:
    """Return the task of a network; classification if it carries none."""
    task = getattr(model, "task", None)
    return task if isinstance(task, Task) else CLASSIFICATION
