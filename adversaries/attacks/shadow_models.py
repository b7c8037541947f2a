"""Shadow models: a record's losses in models trained with it and without it, leaving one out."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Bools, Floats
from adversaries.errors import InputError

LEAST_LOSS = 2.0**-24
"""The smallest cross-entropy of float32 logits that is not rounding error."""

FEWEST = 2
"""Fewest shadow models on each side of a record for a variance."""


@dataclass(frozen=True, eq=False)
class Observations:
    """Losses, in nats, of N models that were trained in the same way, on n records.

    Attributes:
        losses: float64 [N, n], of the final models.
        inclusion: bool [N, n], whether the model was trained on the record.
        population: float64 [N, h], losses of records that no model was trained on; or None.

    Raises InputError for shapes that disagree, or for losses that are not finite.
    """

    losses: Floats
    inclusion: Bools
    population: Floats | None = None

    def __post_init__(self) -> None:
        shape = self.losses.shape
        others = (
            (self.inclusion.shape, shape),
            (() if self.population is None else self.population.shape[:1], shape[:1]),
        )
        if len(shape) != 2 or any(each not in ((), needed) for each, needed in others):
            raise InputError(
                f"losses are {shape}, inclusion {self.inclusion.shape}; give [models, records], "
                "and a population as [models, others]"
            )
        if self.inclusion.dtype != np.bool_:
            raise InputError(f"inclusion is {self.inclusion.dtype}; give True or False")
        for values in (self.losses, self.population):
            if values is not None and not np.isfinite(values).all():
                raise InputError("a loss is not finite: a model diverged; lower the learning rate")

    def of(self, chosen: npt.NDArray[Any]) -> "Observations":
        """Return the observations of some models.

        chosen: their numbers, or bool [N].
        """
        return Observations(
            self.losses[chosen],
            self.inclusion[chosen],
            None if self.population is None else self.population[chosen],
        )

    def unlabelled(self) -> "Observations":
        """Return the same losses without `inclusion`, which raises InputError."""
        return _Unlabelled(self)


class _Unlabelled(Observations):
    def __init__(self, labelled: Observations) -> None:
        object.__setattr__(self, "losses", labelled.losses)
        object.__setattr__(self, "population", labelled.population)

    def __getattr__(self, name: str) -> Any:
        if name == "inclusion":
            raise InputError(
                "an attack has to find targets.inclusion, which it may not read; learn from "
                "shadows.inclusion"
            )
        raise AttributeError(f"observations have no '{name}'")


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of a value over the shadow models of one kind.

    Attributes:
        mean: [N, n], or [1, n] if all models share it.
        scatter: the sum of squared deviations, in the shape of the mean.
        count: [N or 1, n], number of shadow models.
    """

    mean: Floats
    scatter: Floats
    count: Floats

    @property
    def variance(self) -> Floats:
        """The unbiased variance of each record's value; tiny rather than 0."""
        # For losses in nats, 1e-12 is rounding.
        return np.maximum(self.scatter / (self.count - 1), 1e-12)


def confidence(losses: Floats) -> Floats:
    """Return log p/(1 - p) of the probability p = e^-loss of the true label.

    losses: in nats, of any shape; smaller ones count as `LEAST_LOSS`. Source: Carlini et al.,
    "Membership inference attacks from first principles", 2022, section IV.C.
    """
    # log(1 - p) = log(-expm1(-loss)) stays exact where p is almost 1.
    loss = np.maximum(losses, LEAST_LOSS)
    return -(loss + np.log(-np.expm1(-loss)))


def moments(values: Floats, inclusion: Bools, world: bool, leave_one_out: bool) -> Moments:
    """Return the moments of a value over the models with (or without) each record.

    Args:
        values: float64 [N, n].
        inclusion: bool [N, n], whether the model was trained on the record.
        world: True for the models with the record, False for the models without.
        leave_one_out: whether each of the N models gets the moments over all others, or over all.

    Raises InputError for a record with fewer than two such models.
    """
    chosen = (inclusion == world).astype(np.float64)
    # Sums of squares around a nearby point lose nothing to rounding.
    centre = values.mean(axis=0)
    deviations = chosen * (values - centre)
    squares = deviations * (values - centre)
    # Sums over the models of this kind; leaving one out subtracts its own part.
    count = chosen.sum(axis=0, keepdims=True)
    total, square = deviations.sum(0, keepdims=True), squares.sum(0, keepdims=True)
    if leave_one_out:
        count, total, square = count - chosen, total - deviations, square - squares
    check_enough(count, world)
    # The scatter about the mean: that about the centre, less the mean's own distance from it.
    return Moments(centre + total / count, np.maximum(square - total**2 / count, 0), count)


def check_enough(count: Floats, world: bool) -> None:
    """Raise InputError unless every record has enough shadow models of one kind.

    Args:
        count: [N or 1, n], number of shadow models.
        world: True for models with the record, False for models without.

    Raises InputError if a record has fewer than `FEWEST`.
    """
    if count.size and count.min() < FEWEST:
        kind = "with" if world else "without"
        raise InputError(
            f"a record has {count.min():.0f} shadow models {kind} it, but an attack needs at least "
            f"{FEWEST}; train more models"
        )
