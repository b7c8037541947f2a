"""The rule of convolutions (`layers`), for networks that have some."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedsim.common.device import at_least_float32
from fedsim.learning.training.gradients import (
    Backward,
    Formed,
    Gradient,
    Products,
    Rule,
    together,
    worth_forming,
)

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


RULE: Rule = together(_convolution)
