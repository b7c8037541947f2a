"""What few networks need: torchvision's, which is slow to import, and replacements of layers."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm

from adversaries.errors import InputError
from adversaries.registry import lookup
from fedsim.learning.training.layers import ChannelAffine, mixes_records, put

Builder = Callable[[tuple[int, ...], int, int], nn.Module]


def of_torchvision(name: str, prefix: str, others: Mapping[str, Builder]) -> Builder:
    """Return the builder of a network of torchvision, or of others by their names in a table.

    prefix: of the names of torchvision's networks.
    Raises InputError for an unknown name.
    """
    from torchvision import models  # noqa: PLC0415  (slow to import, and only these need it)

    networks = {f"{prefix}{each}": each for each in models.list_models(module=models)}
    if f"{prefix}{name}" in networks:
        raise InputError(
            f"model.name is '{name}', a network of torchvision; write '{prefix}{name}'"
        )
    if name.startswith(prefix):
        return partial(_torchvision, lookup(networks, name, "model.name"))
    return lookup(others, name, "model.name")


def _torchvision(name: str, shape: tuple[int, ...], classes: int, hidden: int) -> nn.Module:
    """Return one of torchvision's classification networks, untrained, without its dropout."""
    from torchvision import models  # noqa: PLC0415  (slow to import, and only these need it)

    # Two networks have a second output in training, and warn about their initialisation.
    options = {"aux_logits": False, "init_weights": True}
    only = options if name in ("googlenet", "inception_v3") else {}
    model: nn.Module = models.get_model(name, weights=None, num_classes=classes, **only)
    for path, layer in list(model.named_modules()):
        if isinstance(layer, _DropoutNd) or type(layer).__name__ == "StochasticDepth":
            put(model, path, nn.Identity())
    return model


def _group_norm(layer: nn.Module) -> nn.Module:
    """Return a GroupNorm of at most 32 groups of two channels or more (arXiv:1803.08494)."""
    assert isinstance(layer, _BatchNorm | _InstanceNorm)
    channels = layer.num_features
    most = max(1, min(32, channels // 2))
    groups = next(count for count in range(most, 0, -1) if channels % count == 0)
    return nn.GroupNorm(groups, channels, layer.eps, layer.affine)


def _channel_affine(layer: nn.Module) -> nn.Module:
    """Return a scale and shift; for a layer that has seen data, with its statistics in them."""
    assert isinstance(layer, _BatchNorm | _InstanceNorm)
    mean, variance = layer.running_mean, layer.running_var
    if mean is None or variance is None or bool((mean == 0).all() and (variance == 1).all()):
        return ChannelAffine(layer.num_features) if layer.affine else nn.Identity()
    replacement, scale = ChannelAffine(layer.num_features), (variance + layer.eps).rsqrt()
    with torch.no_grad():
        replacement.weight.copy_(scale * layer.weight if layer.affine else scale)
        shift = -mean * replacement.weight
        replacement.bias.copy_(shift + layer.bias if layer.affine else shift)
    return replacement


BATCH_NORM: dict[str, Callable[[nn.Module], nn.Module]] = {
    "group-norm": _group_norm,
    "channel-affine": _channel_affine,
}
"""Replacements of a layer that mixes the records of a batch, by name."""


def replace_batch_norm(model: nn.Module, kind: str) -> nn.Module:
    """Return the model with every layer that mixes records replaced, in place.

    Args:
        model: is changed.
        kind: a key of `BATCH_NORM`; else InputError.
    """
    replacement = lookup(BATCH_NORM, kind, "model.batch-norm")
    # A layer that is used in two places gets one replacement.
    made: dict[nn.Module, nn.Module] = {}
    for path, layer in list(model.named_modules(remove_duplicate=False)):
        if mixes_records(layer):
            made.setdefault(layer, replacement(layer))
            if layer is model:
                return made[layer]
            put(model, path, made[layer])
    return model
