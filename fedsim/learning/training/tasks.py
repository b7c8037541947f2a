"""Tasks: the loss of a record, the measures of a model, and its baseline."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from adversaries.errors import InputError
from adversaries.registry import lookup
from fedsim.common.device import at_least_float32
from fedsim.learning.data.dataset import STEPS


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
    from adversaries.statistics.intervals import Interval
    from fedsim.learning.training.predictions import Meaning, PredictedValues

NORMAL = 1.959963984540054
"""The 97.5 % quantile of the normal distribution, for intervals at 95 %."""


def _module(name: str) -> Any:
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
        return _module("predictions").classified(outputs, meaning.classes)

    def baseline(self, model: nn.Module, features: Tensor, labels: Tensor) -> Baseline:
        return Baseline(_module("quality").majority_share(labels))

    def of_trials(self, outputs: Callable[[], Tensor], labels: Tensor) -> dict[str, Tensor]:
        return _module("quality").of_models(outputs(), labels)

    def of_model(
        self, model: nn.Module, outputs: Tensor, features: Tensor, labels: Tensor
    ) -> dict[str, Any]:
        return {"confusion": _module("quality").confusion(outputs, labels).counts}


class NextToken(Task):
    """The next token of a text, which is read from the input; means weight by tokens."""

    name = "next-token"

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return outputs[..., 0]

    def score(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return outputs[..., 1]

    def widths(self, classes: int) -> tuple[int, ...]:
        if classes > 1:
            raise InputError(
                f"model.task is next-token, but the records have {classes} classes; leave classes "
                'out of the schema, or set model.task = "classification"'
            )
        return (2,)

    def predictions(
        self, model: nn.Module, outputs: Tensor, features: Tensor, meaning: "Meaning"
    ) -> "PredictedValues":
        return _module("predictions").likelihoods(outputs[:, 0], self.weights(model, features))

    def weights(self, model: nn.Module, features: Tensor) -> Tensor:
        """Return the number of predicted tokens of each text: all but the first and padding."""
        return (_targets(model, features) >= 0).sum(1).double()

    def mean(self, model: nn.Module, values: Tensor, features: Tensor) -> Tensor:
        weights = self.weights(model, features)
        return values.double() @ weights / weights.sum()

    def baseline(self, model: nn.Module, features: Tensor, labels: Tensor) -> Baseline:
        """Return the baseline of a unigram model, which sees no context.

        It predicts each text from the others: a model fitted to the texts that it is measured on
        would be too good. A new word has the probability that a word was new so far (Witten and
        Bell, 1991, method C).
        """
        targets, config = _targets(model, features).cpu(), cast(Any, model.config)
        words = targets[targets >= 0]
        counts = torch.bincount(words, minlength=config.vocab_size).double()
        seen, total, loss = float((counts > 0).sum()), float(counts.sum()), 0.0
        for text in targets:
            own, times = text[text >= 0].unique(return_counts=True)
            others = counts[own] - times
            different = seen - float((others == 0).sum())
            fresh = different / config.vocab_size if different else 1 / config.vocab_size
            known = total - float(times.sum()) + (different or 1.0)
            loss -= float((times * ((others + fresh) / known).log()).sum())
        return Baseline(float(counts.max() / total), loss / total)

    def of_model(
        self, model: nn.Module, outputs: Tensor, features: Tensor, labels: Tensor
    ) -> dict[str, Any]:
        """Return the unigram baseline's loss and the interval of the mean loss, in nats."""
        weights = self.weights(model, features)
        interval = ratio_interval(outputs[:, 0].double(), weights)
        return {
            "baseline_loss": self.baseline(model, features, labels).loss,
            "loss_interval": interval and [*interval.ends],
        }


def ratio_interval(values: Tensor, weights: Tensor) -> "Interval | None":
    """Return a normal interval at 95 % for the weighted mean of independent records' values.

    values, weights: [n]; None for fewer than two. Source: Cochran, "Sampling techniques" (1977),
    section 2.11: the variance of a ratio of means.
    """
    from adversaries.statistics.intervals import Interval  # noqa: PLC0415

    records, total = len(values), float(weights.sum())
    if records < 2 or not total:
        return None
    mean = float(values @ weights) / total
    square = float((weights * (values - mean)).square().sum()) * records / (records - 1)
    reach = NORMAL * math.sqrt(square) / total
    return Interval(mean - reach, mean + reach, 0.95)


def _targets(model: nn.Module, features: Tensor) -> Tensor:
    """Return the predicted tokens, int64 [n, length - 1], and -1 for padding."""
    config: Any = model.config
    tokens = features[:, 1:].long()
    return tokens.masked_fill(tokens == config.pad_token_id, -1)


class Regression(Task):
    """A number for each record, by its squared error; the range is -SPAN / 2 to SPAN / 2."""

    name = "regression"

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return half of the squared error of the output."""
        predicted, target = _shares(outputs, labels)
        return (SPAN * (predicted - target)).square() / 2

    def score(self, outputs: Tensor, labels: Tensor) -> Tensor:
        predicted, target = _shares(outputs, labels)
        return 1 - (predicted.clamp(0, 1) - target).abs()

    def widths(self, classes: int) -> tuple[int, ...]:
        if classes != 1:
            raise InputError(
                f"model.task is {self.name}, but the labels are {classes} classes; give the range "
                'of the number: target = [0, 60] in the schema, or data.target = "0,60"'
            )
        return (1,)

    def predictions(
        self, model: nn.Module, outputs: Tensor, features: Tensor, meaning: "Meaning"
    ) -> "PredictedValues":
        return _module("predictions").numbers(outputs[:, 0] / SPAN + 0.5, meaning.target)

    def baseline(self, model: nn.Module, features: Tensor, labels: Tensor) -> Baseline:
        """Return the baseline of always answering the median, with the least absolute error."""
        shares = labels.double() / STEPS
        return Baseline(float(1 - (shares - shares.quantile(0.5)).abs().mean()))

    def of_model(
        self, model: nn.Module, outputs: Tensor, features: Tensor, labels: Tensor
    ) -> dict[str, Any]:
        """Return absolute and squared errors, and the share of the variance that is explained."""
        predicted, target = _shares(outputs.double(), labels)
        return {"errors": _module("quality").errors(predicted.clamp(0, 1), target)}


class Huber(Regression):
    """A number for each record, by Huber's loss (1964): squared up to an error of 1 output."""

    name = "huber"

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        predicted, target = (SPAN * share for share in _shares(outputs, labels))
        return functional.huber_loss(predicted, target, reduction="none", delta=NEAR)


NEAR = 1.0
"""Distance in output units beyond which Huber's loss is linear."""


SPAN = 40.0
"""Distance of the network's outputs for the start and the end of the target's range.

With this size the steps are as large as for a classifier's logits: docs/evidence.md.
"""


def _shares(outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return predictions and targets as shares of the range, [...], at least float32."""
    predicted = at_least_float32(outputs[..., 0]) / SPAN + 0.5
    return predicted, labels.to(predicted.dtype) / STEPS


TASKS: dict[str, Task] = {
    task.name: task for task in (Classification(), NextToken(), Regression(), Huber())
}
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
    return task if isinstance(task, Task) else TASKS["classification"]
