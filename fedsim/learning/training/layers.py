"""Rules for layers: how a kind of layer runs T trials at once, and its gradient for each example.

Examples of T trials and n records run as one batch of T * n rows. A layer's rule in `RULES` maps
it, and computes each example's gradient from the input a and the output-gradient e.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn import functional

from fedsim.common.device import at_least_float32
from fedsim.learning.training.gradients import (
    Backward,
    Formed,
    Gradient,
    Products,
    Rows,
    Rule,
    together,
)
from fedsim.learning.training.models import ChannelAffine


def rule_of(layer: nn.Module) -> Rule | None:
    """Return the rule of a kind of layer; None without one."""
    kind = type(layer)
    if kind in (nn.Conv1d, nn.Conv2d, nn.Conv3d):
        from fedsim.learning.training import convolutions  # noqa: PLC0415  (such networks only)

        return convolutions.RULE
    return RULES.get(kind) or BY_NAME.get(f"{kind.__module__}.{kind.__qualname__}")


def refusal(layer: nn.Module) -> str | None:
    """Return why no rule in `RULES` covers this layer; None if a rule does."""
    if rule_of(layer) is None:
        return f"{type(layer).__name__} has no rule"
    if more := {name for name, _ in layer.named_parameters(recurse=False)} - {"weight", "bias"}:
        return f"{type(layer).__name__} with the parameter {min(more)} has no rule"
    if isinstance(layer, nn.Embedding) and (layer.max_norm or layer.scale_grad_by_freq):
        return "Embedding with max_norm or scale_grad_by_freq has no rule"
    return None


def by_torch_func(
    layer: nn.Module, parameters: dict[str, Tensor], x: Tensor
) -> tuple[Tensor, Backward]:
    """Run a layer that maps a batch to a batch of the same length, record by record: a `Rule`.

    parameters: [T, *shape] by name.
    x: [1, n, *shape] where all trials share it, else [T, n, *shape].
    Raises ValueError if the layer does not return one tensor.
    """

    def run(values: dict[str, Tensor], rows: Tensor) -> Tensor:
        return functional_call(layer, values, (rows,))

    def gradient(values: dict[str, Tensor], row: Tensor, error: Tensor) -> dict[str, Tensor]:
        pull = vjp(lambda own: run(own, row[None])[0], values)[1]
        return pull(error)[0]

    shared, inputs = len(x) == 1, x.detach()
    held = {name: value.detach() for name, value in parameters.items()}

    def backward(errors: Tensor) -> dict[str, Gradient]:
        per_trial = vmap(
            vmap(gradient, in_dims=(None, 0, 0)), in_dims=(0, None if shared else 0, 0)
        )
        rows = inputs.to(errors.dtype) if inputs.is_floating_point() else inputs
        values = per_trial(held, rows[0] if shared else rows, errors)
        return {
            name: Formed(value.reshape(*errors.shape[:2], -1)) for name, value in values.items()
        }

    output = vmap(run, in_dims=(0, None if shared else 0))(parameters, x[0] if shared else x)
    if not isinstance(output, Tensor):
        raise ValueError(f"{type(layer).__name__} does not return one tensor")
    return output, backward


def _linear(layer: nn.Module, parameters: dict[str, Tensor], x: Tensor) -> tuple[Tensor, Backward]:
    weight, rows_in = parameters["weight"].mT, x.detach()

    def backward(errors: Tensor) -> dict[str, Gradient]:
        # [t, n, 1 group, positions, size]
        inputs, outputs = (
            each[:, :, None].flatten(3, -2)
            for each in (_row(at_least_float32(rows_in)), _row(errors))
        )
        return {
            "weight": Products(inputs, outputs, lambda products: products.squeeze(-3).mT),
            "bias": Formed(errors.flatten(2, -2).sum(2) if errors.dim() > 3 else errors),
        }

    rows = x.flatten(1, -2).expand(len(weight), -1, -1)
    if "bias" in parameters:
        output = torch.baddbmm(parameters["bias"][:, None], rows, weight)
    else:
        output = rows.bmm(weight)
    return output.unflatten(1, x.shape[1:-1]), backward


def _transposed_linear(
    layer: nn.Module, parameters: dict[str, Tensor], x: Tensor
) -> tuple[Tensor, Backward]:
    """Run a linear layer whose weight is [in, out], like GPT-2's `Conv1D`: a `Rule`."""
    output, plain = _linear(layer, parameters | {"weight": parameters["weight"].mT}, x)

    def backward(errors: Tensor) -> dict[str, Gradient]:
        gradients = plain(errors)
        products = gradients["weight"]
        assert isinstance(products, Products)
        weight = Products(products.inputs, products.errors, lambda each: each.squeeze(-3))
        return gradients | {"weight": weight}

    return output, backward


def _row(x: Tensor) -> Tensor:
    """Return x [t, n, size] with one position, [t, n, 1, size]; x with positions is unchanged."""
    return x[:, :, None] if x.dim() == 3 else x


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


RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _linear,
    nn.Embedding: together(_embedding),
    nn.GroupNorm: _normalised(_group_norm, lambda layer, x: 2),
    nn.LayerNorm: _normalised(_layer_norm, _last_axes),
    ChannelAffine: _normalised(lambda layer, x: x, lambda layer, x: 2),
}

TRANSPOSED = "transformers.pytorch_utils.Conv1D"
"""Class name of GPT-2's linear layers, whose weight is [in, out]."""

BY_NAME: dict[str, Rule] = {TRANSPOSED: _transposed_linear}
"""Rules of layers from packages that may not be installed."""
