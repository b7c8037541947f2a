"""The networks, and how each contestant takes the clipped sum of T models over the same records.

A step returns the sums [T, P]. fedsim works on all T models at once, with kernels of one thread and
trials spread over as many threads as there are cores; Opacus and the step without privacy train the
models one after another, with the threads of PyTorch's kernels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from opacus.grad_sample import (
    GradSampleModule,
    GradSampleModuleFastGradientClipping,
    register_grad_sampler,
    register_norm_sampler,
)
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock

from fedsim.common import device
from fedsim.learning.training.clipping import Clipper
from fedsim.learning.training.models import ChannelAffine, build, initial_parameters
from fedsim.learning.training.tasks import per_example

CORES = device.threads(0)
CLIPPING_NORM = 1.0
FEDSIM, PLAIN = "fedsim", "no privacy"


@dataclass(frozen=True)
class Network:
    """A network, the records it is measured on, and the most models that fit one GPU."""

    model: str
    shape: tuple[int, ...]
    classes: int
    records: int
    hidden: int = 128
    most_trials: int = 1000

    def build(self):
        """Return the module; torchvision's batch norms become group norms."""
        return build(self.model, self.shape, self.classes, self.hidden, batch_norm="group-norm")


NETWORKS = {
    "mnist-cnn": Network("mnist-cnn", (1, 28, 28), 10, 100),
    "purchase-100": Network("mlp", (600,), 100, 1000),
    "adult": Network("adult-mlp", (104,), 2, 1000),
    "resnet18": Network("torchvision:resnet18", (3, 32, 32), 10, 32, most_trials=64),
}


@dataclass(frozen=True)
class Game:
    """The models and records of one comparison: parameters [T, P], features [n, *shape]."""

    network: Network
    parameters: Tensor
    features: Tensor
    labels: Tensor


def game(network, trials, records, where):
    """Draw models by PyTorch's initialisers and uniform records, from a fixed seed."""
    generator = torch.Generator().manual_seed(0)
    features = torch.rand(records, *network.shape, generator=generator)
    labels = torch.randint(network.classes, (records,), generator=generator)
    first = initial_parameters(network.build, 0, range(min(trials, 8)))
    # Building a large network takes longer than a step; more than eight models repeat.
    parameters = first.repeat(-(-trials // len(first)), 1)[:trials]
    return Game(network, *(x.to(where) for x in (parameters, features, labels)))


@dataclass(frozen=True)
class Contestant:
    """A step, to be called after PyTorch's number of threads is set, which is global."""

    threads: int
    step: Callable[[], Tensor]
    remark: str = ""

    def __call__(self):
        """Take the step, and wait for its end."""
        torch.set_num_threads(self.threads)
        total = self.step()
        if total.is_cuda:
            torch.cuda.synchronize()
        return total


def by_fedsim(game, exact=False):
    """Layer by layer, as far as fedsim has rules for the layers; exact as real noise needs it."""
    model = game.network.build().to(game.parameters.device)
    clipper = Clipper(model, CLIPPING_NORM, CORES, exact=exact)
    fallbacks = clipper.fallbacks(game.features[0], game.labels[0])
    remark = "; ".join(f"torch.func for {name or 'all'}: {why}" for name, why in fallbacks.items())
    return Contestant(
        1, lambda: clipper.clipped_sum(game.parameters, game.features, game.labels), remark
    )


def by_torch_func(game):
    """`torch.func`'s per-example gradients, in fedsim's blocks and threads."""
    model = game.network.build().to(game.parameters.device)
    clipper = Clipper(model, CLIPPING_NORM, CORES, layer_by_layer=False)
    return Contestant(1, lambda: clipper.clipped_sum(game.parameters, game.features, game.labels))


@dataclass(frozen=True)
class Opacus:
    """A model wrapped by Opacus, whose losses are sums over the records.

    After `backward` and the optimizer's clipping, the attribute `total` of every parameter is the
    sum of the clipped gradients.
    """

    model: nn.Module
    optimizer: DPOptimizer
    backward: Callable[[Tensor, Tensor], None]
    total: str


def opacus_hooks(model, clipping_norm, noise_multiplier=0.0, rate=1.0):
    """Opacus' default: per-example gradients of every layer, then their clipped sum."""
    wrapped = GradSampleModule(model, loss_reduction="sum")
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=rate),
        noise_multiplier=noise_multiplier,
        max_grad_norm=clipping_norm,
        expected_batch_size=None,
        loss_reduction="sum",
    )

    def backward(features, labels):
        per_example(wrapped(features), labels).sum().backward()

    return Opacus(model, optimizer, backward, "summed_grad")


def opacus_ghost(model, clipping_norm, noise_multiplier=0.0, rate=1.0):
    """Opacus' ghost clipping: norms in a first backward pass, the clipped sum in a second."""
    wrapped = GradSampleModuleFastGradientClipping(
        model, loss_reduction="sum", max_grad_norm=clipping_norm, use_ghost_clipping=True
    )
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(model.parameters(), lr=rate),
        noise_multiplier=noise_multiplier,
        max_grad_norm=clipping_norm,
        expected_batch_size=None,
        loss_reduction="sum",
    )
    loss = DPLossFastGradientClipping(wrapped, optimizer, _Criterion(), loss_reduction="sum")

    def backward(features, labels):
        loss(wrapped(features), labels).backward()

    return Opacus(model, optimizer, backward, "grad")


class _Criterion:
    """`per_example` as Opacus wants a loss: it asks for the losses, not their sum."""

    reduction = "sum"

    def __call__(self, logits, labels):
        assert self.reduction == "none"
        return per_example(logits, labels)


OPACUS = {"Opacus, hooks": opacus_hooks, "Opacus, ghost": opacus_ghost}


def by_opacus(mode, game):
    """One model after another, in one of Opacus' two modes."""
    opacus = mode(out_of_place(game.network.build()).to(game.parameters.device), CLIPPING_NORM)
    parameters = list(opacus.model.parameters())

    def total():
        opacus.optimizer.zero_grad(set_to_none=True)
        opacus.backward(game.features, game.labels)
        opacus.optimizer.clip_and_accumulate()
        flat = torch.cat([getattr(p, opacus.total).flatten() for p in parameters])
        opacus.optimizer.zero_grad(set_to_none=True)  # it keeps the per-example gradients
        return flat

    return _one_by_one(game, parameters, total)


def without_privacy(game):
    """One model after another, and the sum of the gradients unclipped."""
    model = game.network.build().to(game.parameters.device)
    parameters = list(model.parameters())

    def total():
        loss = per_example(model(game.features), game.labels).sum()
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)])

    return _one_by_one(game, parameters, total)


def _one_by_one(game, parameters, total):
    def step():
        sums = torch.empty_like(game.parameters)
        for flat, row in zip(game.parameters, sums, strict=True):
            nn.utils.vector_to_parameters(flat, parameters)  # views, no copies
            row.copy_(total())
        return sums

    return Contestant(CORES, step)


CONTESTANTS = {
    FEDSIM: by_fedsim,
    "fedsim, float64 sums": partial(by_fedsim, exact=True),
    "torch.func": by_torch_func,
    **{name: partial(by_opacus, mode) for name, mode in OPACUS.items()},
    PLAIN: without_privacy,
}


@register_grad_sampler(ChannelAffine)
def _channel_affine(layer, inputs, errors):
    products = inputs[0] * errors
    return {layer.weight: products.flatten(2).sum(-1), layer.bias: errors.flatten(2).sum(-1)}


@register_norm_sampler(ChannelAffine)
def _channel_affine_norms(layer, inputs, errors):
    gradients = _channel_affine(layer, inputs, errors)
    return {parameter: gradient.norm(dim=1) for parameter, gradient in gradients.items()}


def out_of_place(model):
    """Write a network's in-place operations out of place: Opacus' hooks do not allow them."""
    for layer in model.modules():
        if isinstance(layer, nn.ReLU):
            layer.inplace = False
        if isinstance(layer, BasicBlock):
            layer.forward = partial(_residual, layer)
    return model


def _residual(block, x):
    shortcut = x if block.downsample is None else block.downsample(x)
    hidden = block.relu(block.bn1(block.conv1(x)))
    return block.relu(block.bn2(block.conv2(hidden)) + shortcut)
