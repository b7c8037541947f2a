"""One block of trials and records: its gradients, and what clipping makes of them."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedsim.common.blocks import Pool
from fedsim.common.device import Precision, reduced
from fedsim.common.memory import Footprint
from fedsim.training.gradients import Dense, Gradient
from fedsim.training.losses import per_example
from fedsim.training.models import parameter_shapes, unflatten

Gradients = Callable[[Tensor, Tensor, Tensor], Sequence[Gradient]]
"""Parameters, features and labels, as `LayerwiseModel.gradients` takes them -> unclipped gradients.
"""


@dataclass(frozen=True)
class Method:
    """How the gradients of records of one kind are computed, and what memory that takes."""

    fallbacks: dict[str, str]
    gradients: Pool[Gradients]
    footprint: Footprint


def by_torch_func(model: nn.Module, precision: Precision) -> Gradients:
    """Return a function that differentiates record by record, for one thread at a time."""
    model, shapes = copy.deepcopy(model), parameter_shapes(model)

    def loss(values: dict[str, Tensor], feature: Tensor, label: Tensor) -> Tensor:
        return per_example(functional_call(model, values, (feature[None],)), label[None])[0]

    def gradients(parameters: Tensor, features: Tensor, labels: Tensor) -> list[Dense]:
        own = 0 if labels.dim() == 2 else None
        per_record = vmap(grad(loss), in_dims=(None, 0, 0))
        per_trial = vmap(per_record, in_dims=(0, own, own))
        with reduced(precision, features.device):
            found = per_trial(unflatten(parameters, shapes), features, labels)
        shape = (len(parameters), labels.shape[-1], -1)
        return [Dense(gradient.reshape(shape)) for gradient in found.values()]

    return gradients


def clipping_factors(gradients: Sequence[Gradient], clipping_norm: float) -> Tensor:
    """Return min(1, C/|g|) of every gradient, [T, n].

    Args:
        gradients: of each parameter; |g| is the norm of all of them together.
        clipping_norm: C.

    Raises:
        FloatingPointError: a norm is not finite.
    """
    norms = torch.stack([gradient.squared_norms() for gradient in gradients]).sum(0).sqrt()
    check_finite(norms)
    return (clipping_norm / norms).clamp(max=1.0)


def check_finite(values: Tensor) -> None:
    if not bool(torch.isfinite(values).all()):
        raise FloatingPointError(
            "a per-example gradient is not finite: the model diverged; "
            "lower training.learning-rate or training.clipping-norm"
        )
