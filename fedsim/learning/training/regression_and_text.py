"""The tasks without classes: the next token of a text, and a number within a public range."""

import math
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from adversaries.errors import InputError
from adversaries.statistics.intervals import Interval
from fedsim.common.device import at_least_float32
from fedsim.learning.data.dataset import STEPS, TargetRange
from fedsim.learning.training import predictions, quality
from fedsim.learning.training.predictions import PredictedValues
from fedsim.learning.training.tasks import Baseline, Task

if TYPE_CHECKING:
    from fedsim.learning.training.tasks import Meaning

NORMAL = 1.959963984540054
"""The 97.5 % quantile of the normal distribution, for intervals at 95 %."""


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
    ) -> PredictedValues:
        return predictions.likelihoods(outputs[:, 0], self.weights(model, features))

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
    ) -> PredictedValues:
        assert isinstance(meaning, TargetRange)
        return predictions.numbers(outputs[:, 0] / SPAN + 0.5, meaning)

    def baseline(self, model: nn.Module, features: Tensor, labels: Tensor) -> Baseline:
        """Return the baseline of always answering the median, with the least absolute error."""
        shares = labels.double() / STEPS
        return Baseline(float(1 - (shares - shares.quantile(0.5)).abs().mean()))

    def of_model(
        self, model: nn.Module, outputs: Tensor, features: Tensor, labels: Tensor
    ) -> dict[str, Any]:
        """Return absolute and squared errors, and the share of the variance that is explained."""
        predicted, target = _shares(outputs.double(), labels)
        return {"errors": quality.errors(predicted.clamp(0, 1), target)}


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


NEXT_TOKEN = NextToken()
REGRESSION = Regression()
HUBER = Huber()
