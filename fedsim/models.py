"""Networks, and a model of T trials as one [T, P] array.

A builder takes the shape of one record, the number of classes and the width of a hidden layer.
Parameters are flattened in the order of `named_parameters`, so that clipping, noise and belief see
one vector for each trial.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedsim.errors import InputError
from fedsim.randomness import Role, key
from fedsim.registry import lookup


class ChannelAffine(nn.Module):
    """A scale and a shift for each channel: BatchNorm in inference mode, which sees no batch."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, channels, H, W] to the same shape."""
        return x * self.weight[:, None, None] + self.bias[:, None, None]


def _linear(shape: tuple[int, ...], classes: int, hidden: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(_size(shape), classes))


def _mlp(shape: tuple[int, ...], classes: int, hidden: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(_size(shape), hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )


def _mnist_cnn(shape: tuple[int, ...], classes: int, hidden: int) -> nn.Module:
    """The MNIST network of Bernau et al., section 6: 6 554 parameters on 1x28x28."""
    if len(shape) != 3 or min(shape[1:]) < 10:
        raise InputError(
            f"model.name is mnist-cnn, which needs images of at least 10x10, but a record has "
            f'shape {shape}; try model.name = "mlp"'
        )
    channels, height, width = shape
    pooled = ((height - 2) // 2 - 2) // 2 * (((width - 2) // 2 - 2) // 2)
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3),
        nn.ReLU(),
        ChannelAffine(16),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3),
        nn.ReLU(),
        ChannelAffine(16),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * pooled, classes),
    )


Builder = Callable[[tuple[int, ...], int, int], nn.Module]
MODELS: dict[str, Builder] = {"linear": _linear, "mlp": _mlp, "mnist-cnn": _mnist_cnn}


def build(name: str, shape: tuple[int, ...], classes: int, hidden: int) -> nn.Module:
    """Return the named network for records of `shape`. Raises InputError."""
    model = lookup(MODELS, name, "model.name")(shape, classes, hidden)
    refuse_batch_statistics(model)
    return model


def refuse_batch_statistics(model: nn.Module) -> None:
    """Raise InputError if a layer mixes the records of a batch: it has no per-example gradient."""
    for name, layer in model.named_modules():
        if isinstance(layer, _BatchNorm):
            raise InputError(
                f"layer '{name}' is {type(layer).__name__}, whose output depends on the whole "
                "batch, so that no record has a gradient of its own; use nn.GroupNorm instead"
            )


def parameter_shapes(model: nn.Module) -> dict[str, torch.Size]:
    """Return the shape of every parameter, in the order in which they are flattened."""
    return {name: parameter.shape for name, parameter in model.named_parameters()}


def unflatten(flat: Tensor, shapes: dict[str, torch.Size]) -> dict[str, Tensor]:
    """Split [..., P] into named parameters [..., *shape]; views, no copies."""
    pieces = flat.split([shape.numel() for shape in shapes.values()], dim=-1)
    return {
        name: piece.unflatten(-1, shape) if len(shape) else piece.squeeze(-1)
        for (name, shape), piece in zip(shapes.items(), pieces, strict=True)
    }


def initial_parameters(build_model: Callable[[], nn.Module], seed: int, trials: range) -> Tensor:
    """Return theta_0 [T, P] float32: every trial draws its own, by PyTorch's initialisers."""
    rows = []
    with torch.random.fork_rng(devices=[]):
        for trial in trials:
            torch.manual_seed(key(seed, Role.INITIAL_MODEL, trial=trial) % 2**63)
            model = build_model()
            rows.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    return torch.stack(rows)


def _size(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())
