"""The rules of embeddings and of normalising layers (`layers`), for networks that have some."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedsim.common.device import at_least_float32
from fedsim.learning.training.gradients import (
    GRAM_ROUNDING,
    Backward,
    Formed,
    Gradient,
    Rule,
    together,
)


@dataclass(frozen=True)
class Rows(Gradient):
    """Gradients of an embedding [rows, D]: e_l is added to a row, or to none for index -1."""

    indices: Tensor
    errors: Tensor
    rows: int

    def norms(self) -> Tensor:
        # The Gram matrix of e, over pairs of positions with the same row.
        errors = self.errors.double() * self._taken[..., None]
        # Only positions with the same token add to the same row of the embedding.
        same = self.indices[..., :, None] == self.indices[..., None, :]
        gram = ((errors @ errors.mT) * same).sum((-2, -1))
        lengths = torch.linalg.vector_norm(errors, dim=-1).sum(-1)
        return (gram + GRAM_ROUNDING * lengths.square()).sqrt()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        values = self.errors * (weights[..., None] * self._taken)[..., None]
        return self._scatter(values.flatten(1, 2), self.indices.flatten(1))

    def formed(self) -> Tensor:
        trials, records = self.errors.shape[:2]
        values = (self.errors * self._taken[..., None]).flatten(0, 1)
        indices = self.indices.expand(trials, -1, -1).flatten(0, 1)
        return self._scatter(values, indices).unflatten(0, (trials, records)).flatten(2)

    def mapped(self, function: Callable[[Tensor], Tensor]) -> "Rows":
        indices = self.indices.expand(len(self.errors), *self.indices.shape[1:])
        return Rows(function(indices), function(self.errors), self.rows)

    @property
    def _taken(self) -> Tensor:
        return self.indices >= 0

    def _scatter(self, values: Tensor, indices: Tensor) -> Tensor:
        """Add values [N, L, D] to zeros [N, rows, D] at indices [1 or N, L]."""
        # Index -1 goes to row 0, where its value of 0 adds nothing.
        index = indices.clamp(min=0).expand(len(values), -1)[..., None].expand(values.shape)
        zeros = values.new_zeros(len(values), self.rows, values.shape[-1])
        return zeros.scatter_add_(1, index, values)


def _embedding(
    layer: nn.Module, parameters: dict[str, Tensor], x: Tensor
) -> tuple[Tensor, Backward]:
    assert isinstance(layer, nn.Embedding)
    weight = parameters["weight"]
    trials, rows = weight.shape[:2]
    indices = x.detach().flatten(2) if x.dim() > 2 else x.detach()[..., None]
    if layer.padding_idx is not None:
        indices = indices.masked_fill(indices == layer.padding_idx, -1)

    def backward(errors: Tensor) -> dict[str, Gradient]:
        values = errors.reshape(*errors.shape[:2], -1, errors.shape[-1])
        return {"weight": Rows(indices, values, rows)}

    # Look up in one table: the trials' tables one below the other.
    first = torch.arange(trials, device=x.device) * rows
    output = functional.embedding(x + first.view(-1, *[1] * (x.dim() - 1)), weight.flatten(0, 1))
    return output, backward


def _normalised(
    normalise: Callable[[nn.Module, Tensor], Tensor], channel: Callable[[nn.Module, Tensor], int]
) -> Rule:
    """Return the rule of weight * normalise(x) + bias."""

    def rule(layer: nn.Module, parameters: dict[str, Tensor], x: Tensor) -> tuple[Tensor, Backward]:
        normal = normalise(layer, x)
        normal_values, axis = normal.detach(), channel(layer, x)
        weight = parameters["weight"]
        # View the weight [T, *own] as [T, 1 ..., *own, 1 ...], along its axes of the output.
        shape = [len(weight), *[1] * (axis - 1), *weight.shape[1:]]
        shape += [1] * (x.dim() - len(shape))
        # The axes of an example over which the gradient is summed.
        others = [i for i in range(2, x.dim()) if not axis <= i < axis + weight.dim() - 1]

        # The weight's gradient is e * normalise(x), and the bias's is e.
        def backward(errors: Tensor) -> dict[str, Gradient]:
            of_bias = errors.sum(others) if others else errors.clone()
            products = errors.mul_(at_least_float32(normal_values))
            of_weight = products.sum(others) if others else products
            return {"weight": Formed(of_weight), "bias": Formed(of_bias)}

        if "bias" not in parameters:
            return normal * weight.view(shape), backward
        return torch.addcmul(parameters["bias"].view(shape), normal, weight.view(shape)), backward

    return rule


def _group_norm(layer: nn.Module, x: Tensor) -> Tensor:
    assert isinstance(layer, nn.GroupNorm)
    rows = x.flatten(0, 1)
    # A GPU's kernel needs contiguous records; PyTorch would copy them too.
    rows = rows if rows.device.type == "cpu" else rows.contiguous()
    normal = functional.group_norm(rows, layer.num_groups, eps=layer.eps)
    return normal.unflatten(0, x.shape[:2])


def _layer_norm(layer: nn.Module, x: Tensor) -> Tensor:
    assert isinstance(layer, nn.LayerNorm)
    return functional.layer_norm(x, layer.normalized_shape, eps=layer.eps)


def _last_axes(layer: nn.Module, x: Tensor) -> int:
    assert isinstance(layer, nn.LayerNorm)
    return x.dim() - len(layer.normalized_shape)


EMBEDDING = together(_embedding)
GROUP_NORM = _normalised(_group_norm, lambda layer, x: 2)
LAYER_NORM = _normalised(_layer_norm, _last_axes)
CHANNEL_AFFINE = _normalised(lambda layer, x: x, lambda layer, x: 2)
