"""Rules for layers: how a kind of layer runs T trials at once, and its gradient for each example.

Examples of T trials and n records run as one batch of T * n rows. A layer's rule in `RULES` maps
it, and computes each example's gradient from the input a and the output-gradient e.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from fedsim.common.by_use import ByUse
from fedsim.common.device import at_least_float32
from fedsim.learning.training.gradients import Backward, Formed, Gradient, Products, Rule


class ChannelAffine(nn.Module):
    """A scale and a shift of the second axis (channels): BatchNorm in inference mode."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Return records x, [N, channels, *spatial], scaled and shifted."""
        spatial = [1] * (x.dim() - 2)
        return x * self.weight.view(-1, *spatial) + self.bias.view(-1, *spatial)


def mixes_records(layer: nn.Module) -> bool:
    return isinstance(layer, _BatchNorm) or (
        isinstance(layer, _InstanceNorm) and layer.track_running_stats
    )


def put(model: nn.Module, path: str, layer: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, layer)


def rule_of(layer: nn.Module) -> Rule | None:
    """Return the rule of a kind of layer; None without one."""
    kind = type(layer)
    return RULES.get(f"{kind.__module__}.{kind.__qualname__}")


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


PLACE, KINDS = "fedsim.learning.training", "torch.nn.modules"

RULES: Mapping[str, Rule] = ByUse(
    {
        f"{KINDS}.linear.Linear": f"{PLACE}.layers:_linear",
        **{f"{KINDS}.conv.Conv{axes}d": f"{PLACE}.convolutions:RULE" for axes in (1, 2, 3)},
        f"{KINDS}.sparse.Embedding": f"{PLACE}.embeddings_and_norms:EMBEDDING",
        f"{KINDS}.normalization.GroupNorm": f"{PLACE}.embeddings_and_norms:GROUP_NORM",
        f"{KINDS}.normalization.LayerNorm": f"{PLACE}.embeddings_and_norms:LAYER_NORM",
        f"{PLACE}.layers.ChannelAffine": f"{PLACE}.embeddings_and_norms:CHANNEL_AFFINE",
        # GPT-2's linear layers, whose weight is [in, out].
        "transformers.pytorch_utils.Conv1D": f"{PLACE}.layers:_transposed_linear",
    }
)
"""The rule of each kind of layer by its class, loaded for networks that have such a layer."""
