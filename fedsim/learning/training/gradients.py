"""Per-example gradients of one parameter, in the forms in which layers produce them.

Clipping needs their norms and one weighted sum, which most layers can compute without forming the
gradients (Goodfellow 2015, arXiv:1510.01799; Rochette et al. 2019, arXiv:1912.06015). A norm must
never be too small, even for a model that a hostile server chose: one that is not formed has a bound
on its rounding added (docs/explanation/training.md has the proof).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from fedsim.common.blocks import slices

FORMING_COST = 12
"""Multiplications that take as long as writing a number to memory and reading it back twice, the
cost of forming a gradient besides its arithmetic. Measured on one core: 5 to 30."""

STRIP = 120
"""Number of float32 squares that are added in float32 before their sum continues in float64."""

UNDERFLOW = 2.0**-63
"""How much underflow shortens a float32 number in a norm: the root of the smallest normal."""

GRAM_ROUNDING = 2.0**-30
"""Share of (sum_l |a_l| |e_l|)^2 that is added to <a a^T, e e^T>, whose terms may cancel.

The float64 product errs by less than half of this share while in + out + L^2 < 2^22."""

GRAM_CHUNK = 2**17
"""n^2 L of the records whose products are added in one float64 product."""


class Gradient(ABC):
    """The gradients of one parameter for T trials and n records."""

    @abstractmethod
    def norms(self) -> Tensor:
        """Return |g|, float64 [T, n], at least 1 - 2^-18 times its true value for every input.

        It exceeds by at most 2^-18 of it and `UNDERFLOW` times the root of the size; where no
        gradient is formed, its square also by `GRAM_ROUNDING` times (sum_l |a_l| |e_l|)^2.
        """

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return sum_n w[T, n] g[T, n], [T, *shape] or [T, size], in the type of the weights."""

    @abstractmethod
    def formed(self) -> Tensor:
        """Return all gradients, [T, n, size]."""

    @abstractmethod
    def mapped(self, function: Callable[[Tensor], Tensor]) -> "Gradient":
        """Return the gradients with a function of each of their arrays [T, n, ...]."""

    def without(self, dropped: Tensor) -> "Gradient":
        """Return the gradients with zeros where bool [T, n] is true; those may be infinite."""
        return self.mapped(
            lambda each: each.masked_fill(dropped[(...,) + (None,) * (each.dim() - 2)], 0)
        )

    def regrouped(self, trials: int) -> "Gradient":
        """Return the gradients of T G trials of n records as those of T trials of G n records."""
        return self.mapped(lambda each: each.reshape(trials, -1, *each.shape[2:]))


def _as_is(values: Tensor) -> Tensor:
    return values


@dataclass(frozen=True)
class Formed(Gradient):
    """Formed gradients, in the order in which a layer computes them.

    Attributes:
        products: [T, n, *own shape], with [1] for the shape of a scalar.
        arrange: maps [..., *own shape] to [..., *shape].
    """

    products: Tensor
    arrange: Callable[[Tensor], Tensor] = _as_is

    def norms(self) -> Tensor:
        return _norms(self.products.flatten(2))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        flat = self.products.reshape(*weights.shape, -1).to(weights)
        total = (weights[:, None] @ flat).squeeze(1)
        return self.arrange(total.unflatten(1, self.products.shape[2:]))

    def formed(self) -> Tensor:
        return self.arrange(self.products).flatten(2)

    def mapped(self, function: Callable[[Tensor], Tensor]) -> "Formed":
        return Formed(function(self.products), self.arrange)


@dataclass(frozen=True)
class Products(Gradient):
    """Gradients sum_l a_l e_l^T, of the inputs a and output-gradients e at L positions.

    They are formed where that costs less than the matrices of |sum_l a_l e_l^T|^2 = <a a^T, e e^T>.

    Attributes:
        inputs: a, [t, n, G, L, in] with t = 1 where all trials share them, else T; G independent
            groups.
        errors: e, [T, n, G, L, out].
        arrange: maps [..., G, in, out] to [..., *shape].
    """

    inputs: Tensor
    errors: Tensor
    arrange: Callable[[Tensor], Tensor]

    def norms(self) -> Tensor:
        if self.formed_at_once:
            return self._all.norms()
        # The norm of an outer product is the product of the norms. With one position this is the
        # whole gradient.
        lengths = _norms(self.inputs) * _norms(self.errors)  # |a_l| |e_l|, [T, n, G, L]
        if lengths.shape[-1] == 1:
            return torch.linalg.vector_norm(lengths.flatten(2), dim=-1)
        # In float64 no product of two float32 numbers underflows or overflows.
        inputs, errors = self.inputs.double(), self.errors.double()
        # |sum_l a_l e_l^T|^2 is the sum over pairs of positions of <a_l, a_m> <e_l, e_m>, so no
        # gradient is formed.
        gram = ((inputs @ inputs.mT) * (errors @ errors.mT)).sum((-2, -1))
        return (gram + GRAM_ROUNDING * lengths.sum(-1).square()).sum(-1).sqrt()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        if self.formed_at_once:
            return self._all.weighted_sum(weights)
        records, positions = self.errors.shape[1], self.errors.shape[-2]
        chunk = max(1, records)
        if weights.dtype == torch.float64 and positions > 1:
            # Cancelling terms leave rounding errors that grow with the number of terms.
            chunk = max(1, math.isqrt(GRAM_CHUNK // positions))
        sums = [self._product(weights, part) for part in slices(records, chunk)]
        return self.arrange(sums[0] if len(sums) == 1 else torch.stack(sums).sum(0))

    def _product(self, weights: Tensor, part: slice) -> Tensor:
        """Return the weighted sum [T, G, in, out] of some records, in the type of the weights."""
        # One product for each trial and group, over all records and positions.
        # The weights go to the errors, so that the sum over records is part of one matrix product.
        errors = self.errors[:, part] * weights[:, part, None, None, None]
        inputs = self.inputs[:, part].to(errors.dtype)
        errors, inputs = (x.transpose(1, 2).flatten(2, 3) for x in (errors, inputs))
        if len(inputs) == 1 and len(errors) > 1:
            # The trials share one factor, and are more columns of the other.
            columns = errors.permute(1, 2, 0, 3).flatten(2)
            total = inputs[0].mT @ columns
            return total.unflatten(2, (len(errors), -1)).permute(2, 0, 1, 3)
        return inputs.mT @ errors

    def formed(self) -> Tensor:
        return self._all.formed()

    def mapped(self, function: Callable[[Tensor], Tensor]) -> "Products":
        inputs = self.inputs.expand(len(self.errors), *self.inputs.shape[1:])
        return Products(function(inputs), function(self.errors), self.arrange)

    @property
    def formed_at_once(self) -> bool:
        positions, size_in = self.inputs.shape[-2:]
        return worth_forming(positions, size_in, self.errors.shape[-1])

    @property
    def products(self) -> Tensor:
        """The gradients before they are arranged, [T, n, G, in, out]."""
        return self._all.products

    @cached_property
    def _all(self) -> Formed:
        return Formed(self.inputs.mT @ self.errors, self.arrange)


def worth_forming(positions: int, size_in: int, size_out: int) -> bool:
    """Return whether forming the gradients of `Products` costs less than their Gram matrices."""
    if size_in + size_out + positions**2 >= 2**22 and positions > 1:
        return True  # a Gram matrix might round by more than `GRAM_ROUNDING`
    return positions**2 * (size_in + size_out) > FORMING_COST * size_in * size_out


def _norms(values: Tensor) -> Tensor:
    """Return the norms [...] of float32 values [..., size] in float64, never too small.

    The squares of a strip are added in float32 and err by at most (STRIP + 4) 2^-24 < 2^-17 of
    their sum, in any order. The largest loss by underflow is added.
    """
    size = values.shape[-1]
    lost = UNDERFLOW * math.sqrt(size)
    if size <= STRIP or values.dtype == torch.float64:
        return torch.linalg.vector_norm(values, dim=-1).double() + lost
    # Short strips are summed in float32, whose error is then bounded; the strips are summed in
    # float64.
    whole = size // STRIP * STRIP
    strips = torch.linalg.vector_norm(values[..., :whole].unflatten(-1, (-1, STRIP)), dim=-1)
    rest = torch.linalg.vector_norm(values[..., whole:], dim=-1, keepdim=True)
    strips = torch.cat([strips, rest], dim=-1).double()
    return torch.linalg.vector_norm(strips, dim=-1) + lost


def joined(parts: Sequence[Gradient]) -> Gradient:
    """Return the gradient of a parameter that is used several times; its parts add up.

    They are formed, since the norm of a sum does not follow from the norms of its parts.
    """
    if len(parts) == 1:
        return parts[0]
    first, *others = (part.formed() for part in parts)
    for other in others:
        first = first + other
    return Formed(first)


def weighted_sum(gradients: Sequence[Gradient], weights: Tensor) -> Tensor:
    """Return sum_n w[T, n] g[T, n] over all parameters as one vector for each trial, [T, P]."""
    sums = [gradient.weighted_sum(weights) for gradient in gradients]
    joined = sums[0].new_empty(len(weights), sum(total[0].numel() for total in sums))
    # One copy each, for any order of the axes in memory.
    for part, total in zip(joined.split([t[0].numel() for t in sums], dim=1), sums, strict=True):
        part.view(total.shape).copy_(total)
    return joined


def formed(gradients: Sequence[Gradient]) -> Tensor:
    """Return the gradients of all parameters as one vector each, [T, n, P]."""
    return torch.cat([gradient.formed() for gradient in gradients], dim=-1)


Backward = Callable[[Tensor], dict[str, Gradient]]
"""Maps the output-gradient e [T, n, *shape], which it may overwrite, to gradients by parameter."""

Rule = Callable[[nn.Module, dict[str, Tensor], Tensor], tuple[Tensor, Backward]]
"""Layer, parameters {name: [T, *shape]}, input x [t, n, *shape] -> output [T, n, *shape], backward.

t = 1 where all trials share the input, else T.
"""


def together(rule: Rule) -> Rule:
    """Return a rule that runs trials which share their parameters in memory as one trial."""

    def run(layer: nn.Module, parameters: dict[str, Tensor], x: Tensor) -> tuple[Tensor, Backward]:
        trials = len(x)
        if trials == 1 or any(len(p) != trials or p.stride(0) for p in parameters.values()):
            return rule(layer, parameters, x)
        one = {name: values[:1] for name, values in parameters.items()}
        output, backward = rule(layer, one, x.flatten(0, 1)[None])

        def apart(errors: Tensor) -> dict[str, Gradient]:
            gradients = backward(errors.flatten(0, 1)[None])
            return {name: each.regrouped(trials) for name, each in gradients.items()}

        return output[0].unflatten(0, (trials, -1)), apart

    return run
