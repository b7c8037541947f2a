"""Rules for layers: how a kind of layer runs T trials at once, and its gradient for each example.

Examples of T trials and n records run as one batch of T * n rows. A layer's rule in `RULES` maps
it, and computes each example's gradient from the input a and the output-gradient e.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn import functional

from fedsim.common.device import at_least_float32
from fedsim.learning.training.gradients import (
    Formed,
    Gradient,
    Products,
    Rows,
    worth_forming,
)
from fedsim.learning.training.models import ChannelAffine

Backward = Callable[[Tensor], dict[str, Gradient]]
"""Maps the output-gradient e [T, n, *shape], which it may overwrite, to gradients by parameter."""

Rule = Callable[[nn.Module, dict[str, Tensor], Tensor], tuple[Tensor, Backward]]
"""Layer, parameters {name: [T, *shape]}, input x [t, n, *shape] -> output [T, n, *shape], backward.

t = 1 where all trials share the input, else T.
"""


def _together(rule: Rule) -> Rule:
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


def rule_of(layer: nn.Module) -> Rule | None:
    """Return the rule of a kind of layer; None without one."""
    kind = type(layer)
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


_CONVOLUTIONS: dict[type[nn.Module], Callable[..., Tensor]] = {
    nn.Conv1d: functional.conv1d,
    nn.Conv2d: functional.conv2d,
    nn.Conv3d: functional.conv3d,
}

MANY_CHANNELS = 8
"""Least number of channels for which a patch is copied fastest with the channels innermost."""


def _convolution(
    layer: nn.Module, parameters: dict[str, Tensor], x: Tensor
) -> tuple[Tensor, Backward]:
    """Run a convolution; its gradient sums, over output positions, e times the patch of a there.

    Outputs are channels-last, in which pooling and grouped convolutions are several times faster.
    The first convolution, whose input all trials share, is a product with its patches. Later ones
    are one convolution with the trials as groups; on a GPU they are products too (on an H200 7 ms
    instead of 28), because cuDNN runs groups one after the other.
    """
    assert isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d)
    weight, bias = parameters["weight"], parameters.get("bias")
    trials = len(weight)
    # Without gradients, the later layers of a single trial look like a first layer.
    first = len(x) == 1 and not x.requires_grad and (trials > 1 or torch.is_grad_enabled())
    if first or x.device.type != "cpu":
        patches, sizes = _patches(layer, x)
        columns = _as_patches(layer, weight)
        if bias is not None:
            # The bias is the weight of an input that is always 1, which saves passes over memory.
            patches = functional.pad(patches.mT, (0, 0, 0, 1), value=1.0).mT
            columns = torch.cat([columns, bias.view(trials, layer.groups, 1, -1)], dim=2)
        # One product for each trial, over all records and positions.
        product = patches.movedim(2, 1).flatten(2, 3).expand(trials, -1, -1, -1) @ columns
        output = product.movedim(1, 2).flatten(2).unflatten(1, (x.shape[1], *sizes)).movedim(-1, 2)
    else:
        patches, inputs = None, x.detach()
        output = _grouped_convolution(layer, weight, bias, x)

    def backward(errors: Tensor) -> dict[str, Gradient]:
        # e at each output position: [T, n, positions, out], and [T, n, G, positions, out / G].
        positions = errors.flatten(3).mT
        shared = None if patches is None else at_least_float32(patches.detach())
        by_group = positions.unflatten(-1, (layer.groups, -1)).movedim(-2, 2)
        as_weight = partial(_as_weight, layer)
        # Patches of inputs that differ between trials are made only now, to save memory.
        weights: Gradient
        if shared is None and isinstance(layer, nn.Conv2d) and _by_rows(layer, by_group.shape[-2]):
            weights = Formed(_row_products(layer, at_least_float32(inputs), by_group), as_weight)
        elif shared is None:
            weights = Products(_patches(layer, at_least_float32(inputs))[0], by_group, as_weight)
        elif bias is None:
            weights = Products(shared, by_group, as_weight)
        elif (both := Products(shared, by_group, as_weight)).formed_at_once:
            # The gradients are formed anyway: the bias's are the row of the input that is always 1.
            products = both.products
            return {
                "weight": Formed(as_weight(products[..., :-1, :])),
                "bias": Formed(products[..., -1, :].flatten(2)),
            }
        else:
            weights = Products(shared[..., :-1], by_group, as_weight)
        return {"weight": weights, "bias": Formed(positions.sum(2))}

    return output, backward


def _grouped_convolution(
    layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, weight: Tensor, bias: Tensor | None, x: Tensor
) -> Tensor:
    """Return [T, n, out, *sizes] from x [t, n, in, *sizes], by one convolution of T * G groups."""
    trials = len(weight)
    if x.requires_grad:
        # Pooling copies twice if its output's gradient and its input differ in memory format.
        x.register_hook(_channels_last)
    pads = _pads(layer)
    symmetric = pads[::2] == pads[1::2] and layer.padding_mode == "zeros"
    x = (x if symmetric else _pad(layer, x)).expand(trials, *x.shape[1:3], *[-1] * (x.dim() - 3))
    # [n, T * in, *sizes] with the channels last.
    together = x.movedim((1, 0, 2), (0, -2, -1)).flatten(-2).movedim(-1, 1)
    output = _CONVOLUTIONS[type(layer)](
        together,
        weight.flatten(0, 1),
        None if bias is None else bias.flatten(),
        layer.stride,
        pads[::-2] if symmetric else 0,
        layer.dilation,
        trials * layer.groups,
    )
    return _channels_last(output.unflatten(1, (trials, -1)).transpose(0, 1))


def _pads(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d) -> list[int]:
    """Return the padding before and after each axis, the last axis first, for functional.pad."""
    if layer.padding == "valid":
        return [0, 0] * len(layer.kernel_size)
    if isinstance(layer.padding, str):  # "same"
        whole = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
        return [side for size in reversed(whole) for side in (size // 2, size - size // 2)]
    return [side for size in reversed(layer.padding) for side in (size, size)]


def _pad(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, x: Tensor) -> Tensor:
    pads = _pads(layer)
    if not any(pads):
        return x
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    return functional.pad(x.flatten(0, 1), pads, mode).unflatten(0, x.shape[:2])


def _patches(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """Return the patch of x at each output, [t, n, G, positions, patch], and their sizes."""
    windows, axes = _pad(layer, x), len(layer.kernel_size)
    for axis in range(axes):
        reach = (layer.kernel_size[axis] - 1) * layer.dilation[axis] + 1
        windows = windows.unfold(3 + axis, reach, layer.stride[axis])
    for axis, step in enumerate(layer.dilation, start=3 + axes):
        windows = windows[(slice(None),) * axis + (slice(None, None, step),)]
    # [t, n, G, in / G, *sizes, *kernel]
    windows = windows.unflatten(2, (layer.groups, -1))
    sizes, kernel = range(4, 4 + axes), range(4 + axes, 4 + 2 * axes)
    if _channels_innermost(layer):
        patches = windows.permute(0, 1, 2, *sizes, *kernel, 3).flatten(3 + axes)
        return patches.flatten(3, -2), tuple(windows.shape[4 : 4 + axes])
    patches = windows.permute(0, 1, 2, 3, *kernel, *sizes).flatten(3, 3 + axes)
    return patches.flatten(4).mT, tuple(windows.shape[4 : 4 + axes])


def _by_rows(layer: nn.Conv2d, positions: int) -> bool:
    """Return whether a layer's gradients are formed, and `_row_products` can form them."""
    patch = math.prod(layer.kernel_size) * layer.in_channels
    return (
        layer.groups == 1
        and layer.stride[0] == 1
        and _channels_innermost(layer)
        and worth_forming(positions, patch, layer.out_channels)
    )


def _row_products(layer: nn.Conv2d, x: Tensor, errors: Tensor) -> Tensor:
    """Return the products of patches and errors, [T, n, 1, patch, out], one kernel row at a time.

    The patches of a kernel row are consecutive rows of one copy of x, so that a third of the memory
    is written for a kernel of three rows.

    x: [T, n, in, *sizes].
    errors: [T, n, 1, positions, out].
    """
    reach = (layer.kernel_size[1] - 1) * layer.dilation[1] + 1
    windows = _pad(layer, x).movedim(2, -1).unfold(3, reach, layer.stride[1])
    # [T, n, rows of x, columns of the output, columns of the kernel * in]
    columns = windows[..., :: layer.dilation[1]].mT.flatten(4).contiguous()
    height, each = errors.shape[-2] // columns.shape[3], errors.squeeze(2)
    starts = (row * layer.dilation[0] for row in range(layer.kernel_size[0]))
    rows = [columns[:, :, at : at + height].flatten(2, 3).mT @ each for at in starts]
    return torch.cat(rows, dim=2)[:, :, None]


def _channels_innermost(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d) -> bool:
    return layer.in_channels // layer.groups >= MANY_CHANNELS


def _as_patches(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, weight: Tensor) -> Tensor:
    """Map weights [T, out, in / G, *kernel] to [T, G, patch, out / G]."""
    if _channels_innermost(layer):
        weight = weight.movedim(2, -1)
    return weight.flatten(2).unflatten(1, (layer.groups, -1)).mT


def _as_weight(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, products: Tensor) -> Tensor:
    """Map [..., G, patch, out / G] to [..., out, in / G, *kernel]."""
    rows = products.mT.flatten(-3, -2)
    channels = layer.in_channels // layer.groups
    if _channels_innermost(layer):
        return rows.unflatten(-1, (*layer.kernel_size, channels)).movedim(-1, rows.dim() - 1)
    return rows.unflatten(-1, (channels, *layer.kernel_size))


def _channels_last(x: Tensor) -> Tensor:
    """Return x [t, n, channels, *sizes] with the channels innermost in memory."""
    return x.movedim(2, -1).contiguous().movedim(-1, 2)


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
    **dict.fromkeys(_CONVOLUTIONS, _together(_convolution)),
    nn.Embedding: _together(_embedding),
    nn.GroupNorm: _normalised(_group_norm, lambda layer, x: 2),
    nn.LayerNorm: _normalised(_layer_norm, _last_axes),
    ChannelAffine: _normalised(lambda layer, x: x, lambda layer, x: 2),
}

TRANSPOSED = "transformers.pytorch_utils.Conv1D"
"""Class name of GPT-2's linear layers, whose weight is [in, out]."""

BY_NAME: dict[str, Rule] = {TRANSPOSED: _transposed_linear}
"""Rules of layers from packages that may not be installed."""
