"""Predictions of a trained model, in the form of its task."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from adversaries.arrays import Floats, Ints
from fedsim.common.html_table import html_table
from fedsim.learning.data.dataset import TargetRange

Row = list[str | float | int]

SHOWN = 10
"""Number of records that a notebook shows."""


@dataclass(frozen=True)
class Meaning:
    """The meaning of a network's outputs: names of classes, or a predicted number's range."""

    classes: tuple[str, ...] = ()
    target: TargetRange | None = None


class PredictedValues(ABC):
    """A model's predictions, as a table for readers and as JSON."""

    @abstractmethod
    def table(self) -> list[Row]:
        """Return the heading and a row for each record."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """Return the predictions as JSON values."""

    def _repr_html_(self) -> str:
        return html_of(self.table())


@dataclass(frozen=True)
class PredictedNumbers(PredictedValues):
    """A regression's predictions for N records, within the target's range, float64 [N]."""

    values: Floats

    def table(self) -> list[Row]:
        return [["value"], *([value] for value in self.values.tolist())]

    def as_json(self) -> dict[str, Any]:
        return {"values": self.values.tolist()}


@dataclass(frozen=True)
class Predictions(PredictedValues):
    """A classifier's predictions for N records, with probabilities float64 [N, classes]."""

    classes: tuple[str, ...]
    predicted: tuple[str, ...]
    probabilities: Floats

    def table(self) -> list[Row]:
        rows = zip(self.predicted, self.probabilities.tolist(), strict=True)
        return [
            ["class", *(f"p({name})" for name in self.classes)],
            *([name, *likely] for name, likely in rows),
        ]

    def as_json(self) -> dict[str, Any]:
        return {
            "classes": list(self.classes),
            "predicted": list(self.predicted),
            "probabilities": self.probabilities.tolist(),
        }


@dataclass(frozen=True)
class Likelihoods(PredictedValues):
    """A decoder's predicted tokens, their log-likelihood and perplexity, for N cut texts."""

    tokens: Ints
    log_likelihoods: Floats
    perplexities: Floats

    def table(self) -> list[Row]:
        parts = (self.tokens, self.log_likelihoods, self.perplexities)
        rows = zip(*(part.tolist() for part in parts), strict=True)
        return [["tokens", "log-likelihood", "perplexity"], *map(list, rows)]

    def as_json(self) -> dict[str, Any]:
        return {
            "tokens": self.tokens.tolist(),
            "log_likelihoods": self.log_likelihoods.tolist(),
            "perplexities": self.perplexities.tolist(),
        }


def html_of(table: list[Row]) -> str:
    """Return a heading and the first ten records, for a notebook."""
    headings, *rows = table
    shown = [
        [f"{value:.4g}" if isinstance(value, float) else str(value) for value in row]
        for row in rows[:SHOWN]
    ]
    return html_table([str(name) for name in headings], shown, f"{len(rows):,} records")


def likeliest(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the likeliest class, int64 [N], and probabilities, for logits [N, c], c >= 1."""
    logits = logits.double()
    if logits.shape[1] == 1:  # log-odds of the second class against the first
        logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
    probabilities = logits.softmax(dim=1)
    return probabilities.argmax(dim=1), probabilities


def classified(logits: Tensor, names: Sequence[str]) -> Predictions:
    """Return the predictions in logits [N, c], with the name of each class."""
    chosen, probabilities = likeliest(logits)
    named = tuple(names[number] for number in chosen.tolist())
    return Predictions(tuple(names), named, probabilities.numpy())


def numbers(shares: Tensor, target: TargetRange) -> PredictedNumbers:
    """Return the numbers at shares [N] of the target's range, clipped to it."""
    return PredictedNumbers(target.values(shares.double().clamp(0, 1).numpy()))


def likelihoods(losses: Tensor, tokens: Tensor) -> Likelihoods:
    """Return the likelihoods from texts' mean losses [N] and numbers of predicted tokens [N]."""
    losses = losses.double()
    return Likelihoods(tokens.long().numpy(), (-losses * tokens).numpy(), losses.exp().numpy())
