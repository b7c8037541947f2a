"""Networks, and T models of one structure as one [T, P] array, flattened by `named_parameters`."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd

from adversaries.errors import InputError
from adversaries.registry import is_code, lookup
from fedsim.common.randomness import StreamRole, key
from fedsim.learning.training.layers import ChannelAffine, mixes_records
from fedsim.learning.training.tasks import named, task_of


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


@dataclass(frozen=True)
class Tuning:
    """The first values of a network, and the parameters that are trained.

    Attributes:
        weights: a key of `INITIALISERS`, or the path of a safetensors file or of a Hugging Face
            directory; "" for PyTorch's own initialisers.
        sha256: digest of the file or directory, "" for any.
        trainable: names of the only layers or parameters that are trained; "" for all.
        lora_rank: rank of adapters that are trained too; 0 for none.
    """

    weights: str = ""
    sha256: str = ""
    trainable: str = ""
    lora_rank: int = 0


def build(
    name: str,
    shape: tuple[int, ...],
    classes: int,
    hidden: int,
    batch_norm: str = "refuse",
    tuning: Tuning = Tuning(),
    task: str = "classification",
    class_priors: str = "",
) -> nn.Module:
    """Return the named network for records of one shape.

    Raises InputError for an unknown name, or a network or file that does not suit the records.

    Args:
        name: a key of `MODELS`, "torchvision:NAME", "hugging-face", or "package.module:name" of a
            builder.
        shape: of one record.
        classes: number of classes, each of which has a logit.
        hidden: width of a hidden layer.
        batch_norm: "refuse", or a key of `BATCH_NORM` that replaces layers which mix records.
        tuning: the first values, and the parameters that are trained.
        task: a key of `TASKS`, which the network carries.
        class_priors: public shares of the classes, separated by commas.
    """
    model = _started(name, shape, classes, hidden, batch_norm, tuning, task)
    refuse_batch_statistics(model)
    refuse_random_layers(model)
    if tuning.trainable or tuning.lora_rank:
        from fedsim.learning.training import trainable  # noqa: PLC0415  (for such models alone)

        trainable.train_only(model, tuning.trainable)
        if tuning.lora_rank:
            model = trainable.adapt(model, tuning.lora_rank)
    if not list(model.parameters()):
        raise InputError("the model has no parameters; choose one that can be trained")
    if not any(each.requires_grad for each in model.parameters()):
        raise InputError("no parameter of the model is trained; name layers in model.trainable")
    model.task = named(task, class_priors)  # type: ignore[assignment]
    return model


def _started(
    name: str,
    shape: tuple[int, ...],
    classes: int,
    hidden: int,
    batch_norm: str,
    tuning: Tuning,
    task: str,
) -> nn.Module:
    """Return a network with its first values, and without layers that mix records if so asked."""
    values: dict[str, Tensor] = {}
    first = False
    if name == HUGGING_FACE:
        from fedsim.learning.training import hugging_face, pretrained  # noqa: PLC0415  (for these)

        if tuning.sha256:
            pretrained.checked_digest(tuning.weights, tuning.sha256)
        model = hugging_face.build(tuning.weights, shape[-1], classes, task)
    else:
        model = _builder(name)(shape, classes, hidden)
        if tuning.weights in INITIALISERS:
            INITIALISERS[tuning.weights](model)
        elif tuning.weights or tuning.sha256:
            from fedsim.learning.training import pretrained  # noqa: PLC0415  (for files alone)

            values = pretrained.read_values(tuning.weights, tuning.sha256)
            # BatchNorm's statistics must be loaded before a replacement takes them over.
            has_statistics = any(each.endswith(pretrained.STATISTICS) for each in values)
            first = batch_norm == "channel-affine" and has_statistics
    if values and first:
        pretrained.put(model, values)
    if batch_norm != "refuse":
        from fedsim.learning.training import torchvision_networks  # noqa: PLC0415  (such networks only)

        model = torchvision_networks.replace_batch_norm(model, batch_norm)
    if values and not first:
        pretrained.put(model, values)
    return model


def check_input(model: nn.Module, name: str, shape: tuple[int, ...], classes: int) -> None:
    """Raise InputError unless the model maps a record to an output of its task.

    Args:
        model: is called on a record of zeros.
        name: of the model, for the error message.
        shape: of one record.
        classes: number of classes.

    Raises InputError if the model fails, or its output has another shape.
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
    allowed = [(1, width) for width in widths]
    output = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if output not in allowed:
        raise InputError(
            f"{subject}, whose output for one record of {classes} classes is {output}; "
            f"give it an output of shape {allowed[0]}"
        )


def refuse_batch_statistics(model: nn.Module) -> None:
    """Raise InputError if a layer mixes a batch's records, without a gradient of each."""
    for name, layer in model.named_modules():
        if mixes_records(layer):
            raise InputError(
                f"layer '{name}' is {type(layer).__name__}, whose output depends on other records, "
                'so no record has its own gradient; set model.batch-norm = "group-norm" '
                'or "channel-affine" to replace every such layer'
            )


def refuse_random_layers(model: nn.Module) -> None:
    """Raise InputError if a layer draws random numbers: clients and adversary would differ."""
    for name, layer in model.named_modules():
        # torchvision's stochastic depth is recognised by name, because its import is slow.
        draws = isinstance(layer, nn.RReLU) or type(layer).__name__ == "StochasticDepth"
        if isinstance(layer, _DropoutNd):
            draws = layer.p > 0
        elif isinstance(layer, nn.MultiheadAttention | nn.RNNBase):
            draws = layer.dropout > 0
        if draws:
            raise InputError(
                f"layer '{name}' is {type(layer).__name__}, which draws random numbers, so a "
                "record has more than one gradient; build the network without it, or with "
                "probability 0"
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
    rows = []
    for trial in trials:
        with _drawing(seed, trial):
            rows.append(flatten(build_model()))
    return torch.stack(rows)


def structural_model(build_model: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Return the module that all trials share.

    Args:
        build_model: builds the network with new values.
        seed: of the run, which determines the frozen values.
    """
    with _drawing(seed, STRUCTURE):
        return build_model()


STRUCTURE = -1
"""The trial number of the structural model in the seed tree."""


@contextmanager
def _drawing(seed: int, trial: int) -> Iterator[None]:
    """Make PyTorch's initialisers draw from a random stream."""
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which also formats the call stack for every other device.
        torch.default_generator.manual_seed(
            key(seed, StreamRole.INITIAL_MODEL, trial=trial) % 2**63
        )
        yield


def _size(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())
