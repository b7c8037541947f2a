"""Per-example gradients, layer by layer, from one forward and one backward pass.

The examples of T trials and n records run as one batch of T * n rows, so every layer without
parameters runs as it is. Only a parametrised layer knows of trials; its rule in `RULES` says how it
maps such a batch, and what gradient its input a and output-gradient e give for each example
(Goodfellow 2015, arXiv:1510.01799; Rochette et al. 2019, arXiv:1912.06015).
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional
from torch.nn.modules.dropout import _DropoutNd

from fedsim.models import ChannelAffine, parameter_shapes, unflatten


class Gradient(Protocol):
    """The gradients of one parameter for T trials and n records."""

    def squared_norms(self) -> Tensor:
        """Return |g|^2 [T, n]."""

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return sum_n w[T, n] g[T, n] as [T, size]."""

    def numel(self) -> int:
        """Return the number of scalars held."""


@dataclass(frozen=True)
class Dense:
    """Materialised gradients: values [T, n, *shape]."""

    values: Tensor

    def squared_norms(self) -> Tensor:
        return self.values.pow(2).sum(tuple(range(2, self.values.dim())))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        weights = weights[(...,) + (None,) * (self.values.dim() - 2)]
        return (weights * self.values).sum(1).flatten(1)

    def numel(self) -> int:
        return self.values.numel()


@dataclass(frozen=True)
class RankOne:
    """Gradients e a^T of a matrix, never formed: |e a^T| = |e| |a|.

    inputs a [t, n, in] with t = 1 where all trials share them, else T; errors e [T, n, out].
    """

    inputs: Tensor
    errors: Tensor

    def squared_norms(self) -> Tensor:
        return self.inputs.pow(2).sum(-1) * self.errors.pow(2).sum(-1)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        errors = self.errors * weights[..., None]
        if len(self.inputs) == 1:
            return torch.einsum("tno,ni->toi", errors, self.inputs[0]).flatten(1)
        return torch.einsum("tno,tni->toi", errors, self.inputs).flatten(1)

    def numel(self) -> int:
        return self.inputs.numel() + self.errors.numel()


class Rule(Protocol):
    """How a layer whose parameters are {name: [T, *shape]} treats T trials and n records.

    Inputs are x [t, n, *shape], with t = 1 where all trials share them, else T.
    """

    def refusal(self, layer: nn.Module) -> str | None:
        """Return what about this layer the rule does not cover; None if it covers it."""

    def forward(self, layer: nn.Module, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        """Return the output [T, n, *shape]."""

    def gradients(self, layer: nn.Module, x: Tensor, errors: Tensor) -> dict[str, Gradient]:
        """Return the gradient of each parameter, given the output-gradient e [T, n, *shape]."""


class _LinearRule:
    def refusal(self, layer: nn.Module) -> str | None:
        return None

    def forward(self, layer: nn.Module, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        weight = parameters["weight"]
        if len(x) == 1:
            output = torch.einsum("n...i,toi->tn...o", x[0], weight)
        else:
            output = torch.einsum("tn...i,toi->tn...o", x, weight)
        if "bias" in parameters:
            bias = parameters["bias"]
            output = output + bias.view(len(bias), *[1] * (x.dim() - 2), -1)
        return output

    def gradients(self, layer: nn.Module, x: Tensor, errors: Tensor) -> dict[str, Gradient]:
        if x.dim() == 3:
            gradients: dict[str, Gradient] = {"weight": RankOne(x, errors), "bias": Dense(errors)}
        else:
            x, errors = x.flatten(2, -2), errors.flatten(2, -2)
            gradients = {"weight": Dense(errors.mT @ x), "bias": Dense(errors.sum(2))}
        return {name: gradients[name] for name, _ in layer.named_parameters()}


class _Conv2dRule:
    """The weight's gradient is e [out, positions] times the patches of a [positions, k * k * in].

    It is materialised: for the usual small filters that is less than a and e themselves. Outputs
    are in the channels-last memory format, in which PyTorch's pooling is several times faster.
    """

    def refusal(self, layer: nn.Module) -> str | None:
        assert isinstance(layer, nn.Conv2d)
        if layer.groups != 1:
            return f"groups={layer.groups}"
        if layer.padding_mode != "zeros":
            return f"padding_mode={layer.padding_mode!r}"
        return f"padding={layer.padding!r}" if isinstance(layer.padding, str) else None

    def forward(self, layer: nn.Module, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        assert isinstance(layer, nn.Conv2d) and not isinstance(layer.padding, str)
        weight = parameters["weight"]
        if not x.requires_grad:
            # The first layer: [1, n * h * w, k * k * in] times [T, k * k * in, out].
            patches = _patches(layer, x)
            filters = weight.permute(0, 3, 4, 2, 1).flatten(1, 3)
            flat = patches.flatten(1, 3).expand(len(weight), -1, -1).bmm(filters)
            output = flat.unflatten(1, patches.shape[1:4]).permute(0, 1, 4, 2, 3)
        else:
            # Pooling copies twice where its output's gradient is in another format than its input.
            x.register_hook(_channels_last)
            # The trials are the groups of one convolution over [n, T * in, H, W].
            output = functional.conv2d(
                x.transpose(0, 1).flatten(1, 2).contiguous(),
                weight.flatten(0, 1),
                None,
                layer.stride,
                layer.padding,
                layer.dilation,
                groups=len(x),
            )
            output = _channels_last(output.unflatten(1, weight.shape[:2]).transpose(0, 1))
        if "bias" in parameters:
            output = output.add_(parameters["bias"][:, None, :, None, None])
        return output

    def gradients(self, layer: nn.Module, x: Tensor, errors: Tensor) -> dict[str, Gradient]:
        assert isinstance(layer, nn.Conv2d)
        patches, errors = _patches(layer, x).flatten(2, 3), errors.flatten(3)
        # (patches^T e^T) [k * k * in, out] is faster than its transpose.
        product = (patches.mT @ errors.mT).unflatten(2, (*layer.kernel_size, -1))
        gradients: dict[str, Gradient] = {"weight": Dense(product.permute(0, 1, 5, 4, 2, 3))}
        if layer.bias is not None:
            gradients["bias"] = Dense(errors.sum(-1))
        return gradients


def _patches(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """Return what each output position sees of x [t, n, in, H, W]: [t, n, h, w, k * k * in].

    A copy with the channels last is several times faster than `functional.unfold`.
    """
    assert not isinstance(layer.padding, str)
    (top, left), (height, width) = layer.padding, layer.kernel_size
    (down, right), (row, column) = layer.stride, layer.dilation
    x = functional.pad(x, (left, left, top, top)) if top or left else x
    windows = x.unfold(3, (height - 1) * row + 1, down).unfold(4, (width - 1) * column + 1, right)
    return windows[..., ::row, ::column].permute(0, 1, 3, 4, 5, 6, 2).flatten(4)


def _channels_last(x: Tensor) -> Tensor:
    """Return x [t, n, C, H, W] with the channels innermost in memory."""
    return x.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)


class _ChannelAffineRule:
    def refusal(self, layer: nn.Module) -> str | None:
        return None

    def forward(self, layer: nn.Module, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        weight, bias = (parameters[name][:, None, :, None, None] for name in ("weight", "bias"))
        return torch.addcmul(bias, x, weight)

    def gradients(self, layer: nn.Module, x: Tensor, errors: Tensor) -> dict[str, Gradient]:
        return {
            "weight": Dense((x * errors).sum((-2, -1))),
            "bias": Dense(errors.sum((-2, -1))),
        }


RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _LinearRule(),
    nn.Conv2d: _Conv2dRule(),
    ChannelAffine: _ChannelAffineRule(),
}


@dataclass(frozen=True)
class _Call:
    """A call of a parametrised layer: its input [t, n, *shape] and where e will arrive."""

    x: Tensor
    version: int
    output: GradientEdge


class LayerwiseModel:
    """A private copy of a model whose parametrised layers run T trials as one batch.

    Not thread-safe: each thread needs its own.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = copy.deepcopy(model)
        self._shapes = parameter_shapes(model)
        self._layers = dict(_parametrised(self._model))
        self._calls: dict[str, list[_Call]] = {}
        for name, layer in self._layers.items():
            layer.forward = partial(self._forward, name)

    def gradients(self, parameters: Tensor, features: Tensor, labels: Tensor) -> list[Gradient]:
        """Return the unclipped gradients, one item for each parameter in order.

        parameters [T, P], features [n, *shape], labels [n]. Raises ValueError if the model does
        not call every parametrised layer exactly once, on a batch of examples it leaves alone.
        """
        self._size = (len(parameters), len(labels))
        self._values = unflatten(parameters.detach().requires_grad_(), self._shapes)
        self._calls = {name: [] for name in self._layers}
        logits = self._model(features)
        self._check(logits)
        calls = {name: calls[0] for name, calls in self._calls.items()}
        targets = labels.repeat(len(parameters))
        loss = functional.cross_entropy(logits, targets, reduction="sum")
        errors = torch.autograd.grad(loss, [call.output for call in calls.values()])
        gradients: dict[str, Gradient] = {}
        for (name, call), error in zip(calls.items(), errors, strict=True):
            layer = self._layers[name]
            by_parameter = RULES[type(layer)].gradients(
                layer, call.x, error.unflatten(0, self._size)
            )
            gradients |= {_join(name, key): value for key, value in by_parameter.items()}
        return [gradients[name] for name in self._shapes]

    def input_scalars(self) -> int:
        """Return the scalars of layer inputs that the last pass held."""
        return sum(call.x.numel() for calls in self._calls.values() for call in calls)

    def _forward(self, name: str, x: Tensor) -> Tensor:
        layer, (trials, records) = self._layers[name], self._size
        if len(x) not in (records, records * trials):
            raise ValueError(f"layer '{name}' sees {len(x)} rows, which are not the records")
        # Before the first parametrised layer all trials are the same, and run once.
        x = x.unflatten(0, (-1, records))
        parameters = {key: self._values[_join(name, key)] for key, _ in layer.named_parameters()}
        output: Tensor = RULES[type(layer)].forward(layer, parameters, x).flatten(0, 1)
        # An activation may overwrite the output, so e is asked for at its edge of the graph.
        # Writing into a view would replace the edge; this makes it no view, without a copy.
        output = torch.ops.aten._unsafe_view(output, output.shape)
        self._calls[name].append(_Call(x.detach(), x._version, get_gradient_edge(output)))
        return output

    def _check(self, logits: Tensor) -> None:
        for name, calls in self._calls.items():
            if len(calls) != 1:
                raise ValueError(f"layer '{name}' is called {len(calls)} times in one forward pass")
            if calls[0].x._version != calls[0].version:
                raise ValueError(f"the input of layer '{name}' is overwritten after its use")
        trials, records = self._size
        if len(logits) != records * trials:
            raise ValueError("the model does not map each record to logits of its own")


@dataclass(frozen=True)
class Fit:
    """Whether `LayerwiseModel` can differentiate a model, and what that takes."""

    refusal: str | None
    """Why it cannot; None if it can."""
    scalars: int = 0
    """Scalars of layer inputs and gradients held for one example."""


def fit(model: nn.Module, record: Tensor) -> Fit:
    """Try `LayerwiseModel` on records of zeros of the shape and device of `record`."""
    shapes = parameter_shapes(model)
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    if tied := [name for name in names if name not in shapes]:
        return Fit(f"parameter '{tied[0]}' is shared with another layer")
    for name, layer in _parametrised(model):
        rule = RULES.get(type(layer))
        if rule is None:
            return Fit(f"layer '{name}' is {type(layer).__name__}, which has no rule")
        if refusal := rule.refusal(layer):
            return Fit(f"layer '{name}' is {type(layer).__name__} with {refusal}")
    for name, module in model.named_modules():
        if isinstance(module, _DropoutNd) and module.training:
            return Fit(f"layer '{name}' is {type(module).__name__}, which draws random numbers")
    # Different numbers of trials and records, so that an axis taken for the other one shows.
    trials, records = 3, 2
    parameters = record.new_zeros(trials, sum(shape.numel() for shape in shapes.values()))
    labels = torch.zeros(records, dtype=torch.long, device=record.device)
    layerwise = LayerwiseModel(model)
    try:
        gradients = layerwise.gradients(
            parameters, record.new_zeros(records, *record.shape), labels
        )
    except (RuntimeError, ValueError) as error:
        return Fit(str(error))
    held = sum(gradient.numel() for gradient in gradients) + layerwise.input_scalars()
    return Fit(None, -(-held // (trials * records)))


def _parametrised(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules that own parameters themselves, with their names."""
    for name, module in model.named_modules():
        if next(module.parameters(recurse=False), None) is not None:
            yield name, module


def _join(layer: str, parameter: str) -> str:
    return f"{layer}.{parameter}" if layer else parameter
