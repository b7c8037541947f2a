"""Networks, and T models of one structure as one [T, P] array, flattened by `named_parameters`."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd

from adversaries.errors import InputError
from adversaries.registry import is_code, lookup
from fedsim.common.randomness import StreamRole, key
from fedsim.learning.training.layers import ChannelAffine, mixes_records
from fedsim.learning.training.tasks import named, task_of

if TYPE_CHECKING:
    from fedsim.configuration.training import ModelConfig


def glorot(model: nn.Module) -> None:
    """Draw weights in ±√(6/(inputs + outputs)) as Keras (Glorot & Bengio 2010); zero biases."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear | _ConvNd):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


INITIALISERS: dict[str, Callable[[nn.Module], None]] = {"glorot": glorot}
"""By their names in model.weights."""


def _linear(shape: tuple[int, ...], classes: int, hidden: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(_size(shape), classes))


def _mlp(shape: tuple[int, ...], classes: int, hidden: int) -> nn.Module:
    layers = (nn.Linear(_size(shape), hidden), nn.ReLU(), nn.Linear(hidden, classes))
    return nn.Sequential(nn.Flatten(), *layers)


def _adult_mlp(shape: tuple[int, ...], classes: int, hidden: int) -> nn.Module:
    """Return the Adult network of Bernau et al., section 6: 679 parameters, one logit."""
    if classes != 2:
        raise InputError(
            "model.name is adult-mlp, whose one logit separates two classes, but the data have "
            f'{classes}; try model.name = "mlp"'
        )
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(_size(shape), 6),
        nn.ReLU(),
        nn.Linear(6, 6),
        nn.ReLU(),
        nn.Linear(6, 1),
    )


def _mnist_cnn(shape: tuple[int, ...], classes: int, hidden: int) -> nn.Module:
    """Return the MNIST network of Bernau et al., section 6: 6 554 parameters on 1x28x28."""
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
MODELS: dict[str, Builder] = {
    "linear": _linear,
    "mlp": _mlp,
    "mnist-cnn": _mnist_cnn,
    "adult-mlp": _adult_mlp,
}
"""Builders by name. Networks of torchvision are named torchvision:NAME."""

TORCHVISION, HUGGING_FACE = "torchvision:", "hugging-face"


def is_own_code(name: str) -> bool:
    """Return whether a network is built by the user's own code, "package.module:name"."""
    return is_code(name) and not name.startswith(TORCHVISION)


def _builder(name: str) -> Builder:
    if name in MODELS or is_own_code(name):
        return lookup(MODELS, name, "model.name")
    from fedsim.learning.training import torchvision_networks  # noqa: PLC0415  (such networks only)

    return torchvision_networks.of_torchvision(name, TORCHVISION, MODELS)


def build(
    name: str, shape: tuple[int, ...], classes: int, hidden: int = 32, **keys: Any
) -> nn.Module:
    """Return the named network, as `network`.

    Args:
        name: a key of `MODELS`, "torchvision:NAME", "hugging-face", or MODULE:NAME of a builder.
        shape: of one record.
        classes: number of classes, each of which has a logit.
        hidden: width of a hidden layer.
        keys: further fields of `ModelConfig`.
    """
    from fedsim.configuration.training import ModelConfig  # noqa: PLC0415  (pydantic)

    return network(ModelConfig(name=name, hidden=hidden, **keys), shape, classes)


def network(chosen: "ModelConfig", shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the network of a configuration, which carries its task.

    Args:
        chosen: the configuration.
        shape: of one record.
        classes: number of classes, each of which has a logit.

    Raises InputError for an unknown name, or a network or file that does not suit the records.
    """
    model = _started(chosen, shape, classes)
    refuse_layers(model)
    if chosen.trainable or chosen.lora_rank:
        from fedsim.learning.training import trainable  # noqa: PLC0415  (for such models alone)

        trainable.train_only(model, chosen.trainable)
        if chosen.lora_rank:
            model = trainable.adapt(model, chosen.lora_rank)
    if not any(each.requires_grad for each in model.parameters()):
        raise InputError(
            "the model has no parameter that is trained; choose another, or name layers in "
            "model.trainable"
        )
    model.task = named(chosen.task, chosen.class_priors)  # type: ignore[assignment]
    return model


def _started(chosen: "ModelConfig", shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network with its first values, and without layers that mix records if so asked."""
    weights, sha256 = chosen.weights, chosen.weights_sha256
    if chosen.name == HUGGING_FACE:
        from fedsim.learning.training import hugging_face, pretrained  # noqa: PLC0415  (for these)

        if sha256:
            pretrained.checked_digest(weights, sha256)
        return hugging_face.build(weights, shape[-1], classes, chosen.task)
    model = _builder(chosen.name)(shape, classes, chosen.hidden)
    values: dict[str, Tensor] = {}
    if weights in INITIALISERS:
        INITIALISERS[weights](model)
    elif weights or sha256:
        from fedsim.learning.training import pretrained  # noqa: PLC0415  (for files alone)

        values = pretrained.read_values(weights, sha256)
        # BatchNorm's statistics must be loaded before a replacement takes them over.
        if chosen.batch_norm == "channel-affine" and pretrained.has_statistics(values):
            pretrained.put(model, values)
            values = {}
    if chosen.batch_norm != "refuse":
        from fedsim.learning.training import torchvision_networks  # noqa: PLC0415  (such networks only)

        model = torchvision_networks.replace_batch_norm(model, chosen.batch_norm)
    if values:
        pretrained.put(model, values)
    return model


def check_input(model: nn.Module, name: str, shape: tuple[int, ...], classes: int) -> None:
    """Raise InputError unless the model maps a record of zeros to an output of its task.

    Args:
        model: is called.
        name: of the model, for the error message.
        shape: of one record.
        classes: number of classes.
    """
    subject, widths = f"model.name is {name}", task_of(model).widths(classes)
    try:
        with torch.no_grad():
            logits = model(torch.zeros(1, *shape))
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(
            f"{subject}, which does not take records of shape {shape} ({reason}); "
            "choose a network for such records, or prepare the data for this one"
        ) from None
    output = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if output not in [(1, width) for width in widths]:
        raise InputError(
            f"{subject}, whose output for one record of {classes} classes is {output}; "
            f"give it an output of shape {(1, widths[0])}"
        )


def refuse_layers(model: nn.Module) -> None:
    """Raise InputError if a layer mixes a batch's records, or draws random numbers.

    Then a record has no gradient of its own, or clients and adversary would compute different ones.
    """
    for name, layer in model.named_modules():
        subject = f"layer '{name}' is {type(layer).__name__}, which"
        if mixes_records(layer):
            raise InputError(
                f"{subject} mixes the records of a batch, so no record has its own gradient; set "
                'model.batch-norm = "group-norm" or "channel-affine" to replace every such layer'
            )
        # torchvision's stochastic depth is recognised by name, because its import is slow.
        draws = isinstance(layer, nn.RReLU) or type(layer).__name__ == "StochasticDepth"
        draws |= isinstance(layer, _DropoutNd) and layer.p > 0
        draws |= isinstance(layer, nn.MultiheadAttention | nn.RNNBase) and layer.dropout > 0
        if draws:
            raise InputError(
                f"{subject} draws random numbers, so a record has more than one gradient; build "
                "the network without it, or with probability 0"
            )


def frozen_parameters(model: nn.Module) -> int:
    """Return the number of scalars that are not trained."""
    return sum(p.numel() for p in model.parameters() if not p.requires_grad)


def parameter_shapes(model: nn.Module) -> dict[str, torch.Size]:
    """Return the shape of every trained parameter, in their flattened order."""
    return {name: p.shape for name, p in model.named_parameters() if p.requires_grad}


def size(model: nn.Module) -> int:
    """Return P, the number of scalars that are trained."""
    return sum(shape.numel() for shape in parameter_shapes(model).values())


def flatten(model: nn.Module) -> Tensor:
    """Return the trained values as one vector [P]."""
    return torch.cat([p.detach().flatten() for p in model.parameters() if p.requires_grad])


def unflatten(flat: Tensor, shapes: dict[str, torch.Size]) -> dict[str, Tensor]:
    """Return vectors [..., P] split into named parameters [..., *shape], as views.

    Args:
        flat: [..., P].
        shapes: of every trained parameter, from `parameter_shapes`.
    """
    pieces = flat.split([shape.numel() for shape in shapes.values()], dim=-1)
    return {
        name: piece.unflatten(-1, shape) if len(shape) else piece.squeeze(-1)
        for (name, shape), piece in zip(shapes.items(), pieces, strict=True)
    }


def initial_parameters(
    build_model: Callable[[], nn.Module], seed: int, trials: Sequence[int]
) -> Tensor:
    """Return theta_0 of each trial, float32 [T, P].

    Args:
        build_model: builds the network with new values.
        seed: of the run.
        trials: the numbers of the T trials; a row depends only on (seed, trial).
    """
    return torch.stack([flatten(_drawn(build_model, seed, trial)) for trial in trials])


def structural_model(build_model: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Return the module that all trials share, with frozen values that the seed determines.

    Args:
        build_model: builds the network with new values.
        seed: of the run.
    """
    return _drawn(build_model, seed, STRUCTURE)


STRUCTURE = -1
"""The trial number of the structural model in the seed tree."""


def _drawn(build_model: Callable[[], nn.Module], seed: int, trial: int) -> nn.Module:
    """Return a network whose new values come from a random stream."""
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which also formats the call stack for every other device.
        torch.default_generator.manual_seed(
            key(seed, StreamRole.INITIAL_MODEL, trial=trial) % 2**63
        )
        return build_model()


def _size(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())
