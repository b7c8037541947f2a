"""Predictions of a trained model, in the form of its task."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from adversaries.arrays import Floats, Ints
from fedsim.common.html_table import html_table
from fedsim.learning.data.dataset import TargetRange

Row = list[str | float | int]

SHOWN = 10
"""Number of records that a notebook shows."""


class PredictedValues:
    """A model's predictions for N records, as a table for readers and as JSON."""

    HEADINGS: ClassVar[tuple[str, ...]] = ()

    def table(self) -> list[Row]:
        """Return the heading and a row for each record."""
        rows = zip(*self.as_json().values(), strict=True)
        return [list(self.HEADINGS), *map(list, rows)]

    def as_json(self) -> dict[str, Any]:
        """Return the predictions as JSON values."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else list(value)
            for name, value in values.items()
        }

    def _repr_html_(self) -> str:
        """Return the heading and the first ten records, for a notebook."""
        headings, *rows = self.table()
        shown = [
            [f"{value:.4g}" if isinstance(value, float) else str(value) for value in row]
            for row in rows[:SHOWN]
        ]
        return html_table([str(name) for name in headings], shown, f"{len(rows):,} records")


@dataclass(frozen=True)
class PredictedNumbers(PredictedValues):
    """A regression's predictions, within the target's range, float64 [N]."""

    HEADINGS = ("value",)
    values: Floats


@dataclass(frozen=True)
class Likelihoods(PredictedValues):
    """A decoder's numbers of predicted tokens, their log-likelihoods and perplexities, [N]."""

    HEADINGS = ("tokens", "log-likelihood", "perplexity")
    tokens: Ints
    log_likelihoods: Floats
    perplexities: Floats


@dataclass(frozen=True)
class Predictions(PredictedValues):
    """A classifier's classes, its answers [N], and probabilities float64 [N, classes]."""

    classes: tuple[str, ...]
    predicted: tuple[str, ...]
    probabilities: Floats

    def table(self) -> list[Row]:
        rows = zip(self.predicted, self.probabilities.tolist(), strict=True)
        return [
            ["class", *(f"p({name})" for name in self.classes)],
            *([name, *likely] for name, likely in rows),
        ]


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
