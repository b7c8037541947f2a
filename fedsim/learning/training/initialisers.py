"""Initialisers of a network's first values, as alternatives to PyTorch's own."""

from collections.abc import Callable

from torch import nn
from torch.nn.modules.conv import _ConvNd


def glorot(model: nn.Module) -> None:
    """Draw weights in ±√(6/(inputs + outputs)) as Keras (Glorot & Bengio 2010); zero biases."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear | _ConvNd):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


INITIALISERS: dict[str, Callable[[nn.Module], None]] = {"glorot": glorot}
"""By their names in model.weights."""
