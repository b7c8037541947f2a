"""Per-example gradients of one parameter, in the forms that layers give them.

T trials and n records have T * n gradients. Clipping needs their norms and one weighted sum of
them, for which most layers need not form them at all (Goodfellow 2015, arXiv:1510.01799; Rochette
et al. 2019, arXiv:1912.06015).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

FORMING_COST = 12
"""Multiplications that take as long as writing one number to memory and reading it back twice: what
a formed gradient costs beside the arithmetic. Measured on one core, between 5 and 30."""


class Gradient(ABC):
    """The gradients of one parameter for T trials and n records."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """Return |g|^2 [T, n]."""

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return sum_n w[T, n] g[T, n].

        Args:
            weights: w, [T, n].

        Returns:
            [T, *shape], or flat as [T, size].
        """

    @abstractmethod
    def formed(self) -> Tensor:
        """Return all gradients, [T, n, size]."""


@dataclass(frozen=True)
class Dense(Gradient):
    """Formed gradients.

    Attributes:
        values: [T, n, *shape], with [1] for the shape of a scalar.
    """

    values: Tensor

    def squared_norms(self) -> Tensor:
        """Return the sums of the squares, [T, n]."""
        return self.values.pow(2).sum(tuple(range(2, self.values.dim())))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the sum of the weighted gradients, [T, *shape].

        Args:
            weights: [T, n].
        """
        weights = weights[(...,) + (None,) * (self.values.dim() - 2)]
        return (weights * self.values).sum(1)

    def formed(self) -> Tensor:
        """Return the values, flattened to [T, n, size]."""
        return self.values.flatten(2)


@dataclass(frozen=True)
class Products(Gradient):
    """Gradients sum_l a_l e_l^T, of the inputs a and output-gradients e at L positions.

    Forms the gradients where that costs less than the Gram matrices a a^T and e e^T, in which
    |sum_l a_l e_l^T|^2 = <a a^T, e e^T>.

    Attributes:
        inputs: a, [t, n, G, L, in] with t = 1 where all trials share them, else T; G independent
            groups.
        errors: e, [T, n, G, L, out].
        arrange: maps [..., G, in, out] to [..., *shape].
    """

    inputs: Tensor
    errors: Tensor
    arrange: Callable[[Tensor], Tensor]

    def squared_norms(self) -> Tensor:
        """Return |g|^2 [T, n], from the formed gradients or from the Gram matrices."""
        if not self.formed_at_once:
            if self.inputs.shape[-2] == 1:
                each = self.inputs.pow(2).sum((-2, -1)) * self.errors.pow(2).sum((-2, -1))
            else:
                gram = (self.inputs @ self.inputs.mT) * (self.errors @ self.errors.mT)
                each = gram.sum((-2, -1))
            # The squares of a rounded sum may come out below zero.
            return each.sum(-1).clamp(min=0)
        return self.products.pow(2).sum((-3, -2, -1))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the weighted sum [T, *shape], of the formed gradients or from the weighted errors.

        Args:
            weights: [T, n].
        """
        if self.formed_at_once:
            trials, records = weights.shape
            flat = self.products.reshape(trials, records, -1)
            total = (weights[:, None] @ flat).squeeze(1)
            return self.arrange(total.unflatten(1, self.products.shape[2:]))
        # One product for each trial and group, over all records and positions.
        errors = self.errors * weights[..., None, None, None]
        errors, inputs = (x.transpose(1, 2).flatten(2, 3) for x in (errors, self.inputs))
        if len(inputs) == 1 and len(errors) > 1:
            # The trials share one factor, and are more columns of the other.
            columns = errors.permute(1, 2, 0, 3).flatten(2)
            total = (inputs[0].mT @ columns).unflatten(2, (len(errors), -1)).permute(2, 0, 1, 3)
        else:
            total = inputs.mT @ errors
        return self.arrange(total)

    def formed(self) -> Tensor:
        """Return the products, arranged and flattened to [T, n, size]."""
        return self.arrange(self.products).flatten(2)

    @property
    def formed_at_once(self) -> bool:
        """Whether forming the gradients costs less than the Gram matrices."""
        positions, size_in = self.inputs.shape[-2:]
        size_out = self.errors.shape[-1]
        return positions**2 * (size_in + size_out) > FORMING_COST * size_in * size_out

    @cached_property
    def products(self) -> Tensor:
        """The gradients before they are arranged, [T, n, G, in, out]."""
        return self.inputs.mT @ self.errors


@dataclass(frozen=True)
class Rows(Gradient):
    """Gradients of an embedding [rows, D]: at each position l, e_l is added to one row.

    Attributes:
        indices: [t, n, L], t as of `Products.inputs`; a row of -1 takes nothing.
        errors: e, [T, n, L, D].
        rows: of the table.
    """

    indices: Tensor
    errors: Tensor
    rows: int

    def squared_norms(self) -> Tensor:
        """Return |g|^2 [T, n], by the Gram matrix of e over pairs of positions of the same row."""
        same = (self.indices[..., :, None] == self.indices[..., None, :]) & (self._taken[..., None])
        return ((self.errors @ self.errors.mT) * same).sum((-2, -1)).clamp(min=0)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return one table for each trial, with the weighted errors of all records, [T, rows, D].

        Args:
            weights: [T, n].
        """
        values = self.errors * (weights[..., None] * self._taken)[..., None]
        return self._scatter(values.flatten(1, 2), self.indices.flatten(1))

    def formed(self) -> Tensor:
        """Return a table for each record, flattened to [T, n, rows * D]."""
        trials, records = self.errors.shape[:2]
        values = (self.errors * self._taken[..., None]).flatten(0, 1)
        indices = self.indices.expand(trials, -1, -1).flatten(0, 1)
        return self._scatter(values, indices).unflatten(0, (trials, records)).flatten(2)

    @property
    def _taken(self) -> Tensor:
        return self.indices >= 0

    def _scatter(self, values: Tensor, indices: Tensor) -> Tensor:
        """Add values [N, L, D] to zeros [N, rows, D] at indices [1 or N, L]."""
        index = indices.clamp(min=0).expand(len(values), -1)[..., None].expand(values.shape)
        zeros = values.new_zeros(len(values), self.rows, values.shape[-1])
        return zeros.scatter_add_(1, index, values)


@dataclass(frozen=True)
class Shared(Gradient):
    """A parameter that is used several times.

    Attributes:
        parts: the gradients of its uses, whose sum is its own.
    """

    parts: Sequence[Gradient]

    def squared_norms(self) -> Tensor:
        """Return |g|^2 [T, n] of the formed sums: the parts' norms do not add up."""
        return self._formed.pow(2).sum(-1)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the sum of the weighted gradients, [T, size].

        Args:
            weights: [T, n].
        """
        return (weights[:, None] @ self._formed).squeeze(1)

    def formed(self) -> Tensor:
        """Return the sums of the formed parts, [T, n, size]."""
        return self._formed

    @cached_property
    def _formed(self) -> Tensor:
        first, *others = (part.formed() for part in self.parts)
        for other in others:
            first = first + other
        return first


def joined(parts: Sequence[Gradient]) -> Gradient:
    """Return the gradient of a parameter from its uses."""
    return parts[0] if len(parts) == 1 else Shared(parts)


def weighted_sum(gradients: Sequence[Gradient], weights: Tensor) -> Tensor:
    """Return sum_n w[T, n] g[T, n] over all parameters as one vector for each trial.

    Args:
        gradients: of each parameter, in the order in which they are flattened.
        weights: w, [T, n].

    Returns:
        [T, P].
    """
    sums = [gradient.weighted_sum(weights) for gradient in gradients]
    joined = sums[0].new_empty(len(weights), sum(total[0].numel() for total in sums))
    # One copy each, whatever the order of the axes in memory is.
    for part, total in zip(joined.split([t[0].numel() for t in sums], dim=1), sums, strict=True):
        part.view(total.shape).copy_(total)
    return joined


def formed(gradients: Sequence[Gradient]) -> Tensor:
    """Return the gradients of all parameters as one vector each, [T, n, P]."""
    return torch.cat([gradient.formed() for gradient in gradients], dim=-1)
