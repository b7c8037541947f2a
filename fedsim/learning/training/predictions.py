"""What a trained model says of records, in the form that its task gives it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedsim.common.html_table import html_table
from fedsim.learning.data.loaders.targets import Target

Row = list[str | float | int]

SHOWN = 10
"""Records that a notebook shows."""


@dataclass(frozen=True)
class Meaning:
    """What the outputs of a network mean.

    Attributes:
        classes: their names; none of a number or a text.
        target: the range of a number that is predicted; None for others.
    """

    classes: tuple[str, ...] = ()
    target: Target | None = None


@dataclass(frozen=True)
class Numbers:
    """What a regression predicts of N records.

    Attributes:
        values: the numbers, within the target's range, float64 [N].
    """

    values: npt.NDArray[np.float64]

    def table(self) -> list[Row]:
        """Return the heading and a row for each record."""
        return [["value"], *([value] for value in self.values.tolist())]

    def _repr_html_(self) -> str:
        return html_of(self.table())

    def as_json(self) -> dict[str, Any]:
        """Return the same as JSON values."""
        return {"values": self.values.tolist()}


@dataclass(frozen=True)
class Predictions:
    """What a classifier says of N records.

    Attributes:
        classes: the name of each class.
        predicted: the name of each record's most likely class.
        probabilities: how likely each class is, float64 [N, classes].
    """

    classes: tuple[str, ...]
    predicted: tuple[str, ...]
    probabilities: npt.NDArray[np.float64]

    def table(self) -> list[Row]:
        """Return the heading and a row for each record."""
        rows = zip(self.predicted, self.probabilities.tolist(), strict=True)
        return [
            ["class", *(f"p({name})" for name in self.classes)],
            *([name, *likely] for name, likely in rows),
        ]

    def _repr_html_(self) -> str:
        return html_of(self.table())

    def as_json(self) -> dict[str, Any]:
        """Return the same as JSON values."""
        return {
            "classes": list(self.classes),
            "predicted": list(self.predicted),
            "probabilities": self.probabilities.tolist(),
        }


@dataclass(frozen=True)
class Likelihoods:
    """What a decoder says of N texts, cut to the length that it takes.

    Attributes:
        tokens: how many were predicted, all but the first, int64 [N].
        log_likelihoods: of these tokens together, in nats, float64 [N].
        perplexities: the exponential of the mean loss of one, float64 [N].
    """

    tokens: npt.NDArray[np.int64]
    log_likelihoods: npt.NDArray[np.float64]
    perplexities: npt.NDArray[np.float64]

    def table(self) -> list[Row]:
        """Return the heading and a row for each text."""
        parts = (self.tokens, self.log_likelihoods, self.perplexities)
        rows = zip(*(part.tolist() for part in parts), strict=True)
        return [["tokens", "log-likelihood", "perplexity"], *map(list, rows)]

    def _repr_html_(self) -> str:
        return html_of(self.table())

    def as_json(self) -> dict[str, Any]:
        """Return the same as JSON values."""
        return {
            "tokens": self.tokens.tolist(),
            "log_likelihoods": self.log_likelihoods.tolist(),
            "perplexities": self.perplexities.tolist(),
        }


def html_of(table: list[Row]) -> str:
    """Return a heading and the first ten records, as a notebook shows them."""
    headings, *rows = table
    shown = [
        [f"{value:.4g}" if isinstance(value, float) else str(value) for value in row]
        for row in rows[:SHOWN]
    ]
    return html_table([str(name) for name in headings], shown, f"{len(rows):,} records")


def likeliest(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the most likely class of each record, and how likely each class is.

    logits: [N, c]; a single one (c = 1) is the log-odds of class 1.
    Returns: int64 [N], and probabilities float64 [N, classes].
    """
    logits = logits.double()
    if logits.shape[1] == 1:  # of two classes, the second's against the first's
        logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
    probabilities = logits.softmax(dim=1)
    return probabilities.argmax(dim=1), probabilities


def classified(logits: Tensor, names: Sequence[str]) -> Predictions:
    """Return what logits [N, c] say, with the name of each class."""
    chosen, probabilities = likeliest(logits)
    named = tuple(names[number] for number in chosen.tolist())
    return Predictions(tuple(names), named, probabilities.numpy())


def numbers(shares: Tensor, target: Target) -> Numbers:
    """Return the numbers at shares [N] of the target's range, cut to it."""
    return Numbers(target.values(shares.double().clamp(0, 1).numpy()))


def likelihoods(losses: Tensor, tokens: Tensor) -> Likelihoods:
    """Return what texts' mean losses [N] say, of so many predicted tokens [N] each."""
    losses = losses.double()
    return Likelihoods(tokens.long().numpy(), (-losses * tokens).numpy(), losses.exp().numpy())
