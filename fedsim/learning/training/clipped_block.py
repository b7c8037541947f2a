"""One block of trials and records: its gradients, clipped and added up."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from fedsim.common.blocks import ThreadPool
from fedsim.common.device import Precision, reduced, single_threaded_kernels
from fedsim.common.memory import Footprint, footprint
from fedsim.learning.training.gradients import Formed, Gradient, weighted_sum
from fedsim.learning.training.layers import refusal
from fedsim.learning.training.layerwise import LayerwiseModel, fallbacks
from fedsim.learning.training.models import flatten, parameter_shapes, unflatten
from fedsim.learning.training.slots import SLOTS
from fedsim.learning.training.tasks import task_of

MARGIN = 2.0**-17
"""Share of C that clipping reserves for rounding in norms, factors and exact sums."""

Gradients = Callable[[Tensor, Tensor, Tensor], Sequence[Gradient]]
"""(parameters, features, labels) of `LayerwiseModel.gradients` -> unclipped gradients."""


@dataclass(frozen=True)
class Method:
    """A method to compute the gradients of records of one kind, with a function for each thread.

    Attributes:
        divisible: whether every product is one for each group of an exact sum. Own code may
            multiply all rows of a batch at once; then a batch must have one group.
    """

    fallbacks: dict[str, str]
    gradients: ThreadPool[Gradients]
    footprint: Footprint
    divisible: bool

    @classmethod
    def of(
        cls,
        model: nn.Module,
        clipping_norm: float,
        record: Tensor,
        label: Tensor,
        *,
        precision: Precision,
        layer_by_layer: bool,
        own: bool,
        exact: bool,
    ) -> Self:
        """Return the method for records as [*shape], after measuring its memory."""
        reasons = fallbacks(model, record) if layer_by_layer else {"": "as asked"}

        def make() -> Gradients:
            if "" in reasons:
                return _by_torch_func(model, precision)
            return LayerwiseModel(model, precision).gradients

        gradients = ThreadPool(make)
        parameters = flatten(model)

        def block(trials: int, records: int) -> Tensor:
            features, labels = (x.expand(records, *x.shape) for x in (record, label))
            if own:  # a copy for each trial, as in gathered batches
                features, labels = (x.expand(trials, *x.shape).clone() for x in (features, labels))
            some = parameters.expand(trials, -1)
            return clipped_sum(gradients, clipping_norm, some, features, labels, exact=exact)

        seen = False
        if exact and own and (reasons or not _is_plain(model)):
            groups = (x.new_zeros(1, 2 * SLOTS, *x.shape) for x in (record, label))
            with _WholeProducts() as products, gradients.lend() as gradients_of:
                by_groups(gradients_of, parameters[None], *groups)
            seen = products.seen
        return cls(reasons, gradients, footprint(block, record.device), not seen)


def _is_plain(model: nn.Module) -> bool:
    """Return whether a model has only trained layers with rules, and PyTorch's layers without any.

    Neither multiplies a matrix of all rows, so it need not be watched, for which PyTorch would
    import its compiler. A frozen layer runs without its rule.
    """
    return all(each.requires_grad for each in model.parameters()) and all(
        refusal(each) is None
        or type(each) is nn.Sequential
        or (
            type(each).__module__.startswith("torch.nn.modules.")
            and not list(each.children())
            and not list(each.parameters())
        )
        for each in model.modules()
    )


class _WholeProducts(TorchDispatchMode):
    """Sees whether an operator multiplies a matrix whose rows are all records of a batch."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = False

    operators = frozenset(
        (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.mv, torch.ops.aten.addmv)
    )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        self.seen |= func.overloadpacket in self.operators
        return func(*args, **(kwargs or {}))


def clipped_sum(
    pool: ThreadPool[Gradients],
    clipping_norm: float | Tensor,
    parameters: Tensor,
    features: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    *,
    exact: bool = False,
) -> Tensor:
    """Return one block of the clipped sum, [t, P].

    clipping_norm: of all trials, or finite ones of each, [t, 1].
    weights: [t, n]; None for all ones.
    exact: as for `clipped`; records are computed in groups of `SLOTS`, if they fill some.
    Returns: NaN where a gradient is not finite.
    """
    gradients: Sequence[Gradient]
    clipping = isinstance(clipping_norm, Tensor) or clipping_norm < math.inf
    with pool.lend() as gradients_of:
        placed = exact and clipping and labels.dim() == 2
        if placed and labels.shape[1] % SLOTS == 0:
            gradients = by_groups(gradients_of, parameters, features, labels)
        else:
            gradients = gradients_of(parameters, features, labels)
    if not clipping:
        # No norms are needed: a gradient that is not finite stays so in the sum, even times 0.
        scale = torch.ones_like(parameters[:, :1]).expand(-1, labels.shape[-1])
    else:
        gradients, scale = clipped(gradients, clipping_norm, exact)
    if weights is not None:
        # w = 0 must remove a record exactly: 0 * g does so for every finite g.
        scale = scale * weights.to(scale)
    return weighted_sum(gradients, scale)


def by_groups(
    gradients_of: Gradients, parameters: Tensor, features: Tensor, labels: Tensor
) -> list[Gradient]:
    """Return the gradients of T trials with separate records, [T, n, *shape].

    Every `SLOTS` records are one more trial to the model, so that a layer's product is a batch of
    equal products, one for each group.
    """
    if labels.device.type == "cpu":
        single_threaded_kernels()  # threads would cut a kernel's rows into unequal parts
    trials, groups = len(labels), labels.shape[1] // SLOTS
    # For one trial, the groups share its parameters in memory.
    repeated = parameters[:, None].expand(-1, groups, -1).flatten(0, 1)
    features, labels = (x.unflatten(1, (groups, SLOTS)).flatten(0, 1) for x in (features, labels))
    return [each.regrouped(trials) for each in gradients_of(repeated, features, labels)]


def _by_torch_func(model: nn.Module, precision: Precision) -> Gradients:
    """Return a function that differentiates record by record, for one thread."""
    model, shapes, task = copy.deepcopy(model), parameter_shapes(model), task_of(model)

    def loss(values: dict[str, Tensor], feature: Tensor, label: Tensor) -> Tensor:
        return task.loss(functional_call(model, values, (feature[None],)), label[None])[0]

    def gradients(parameters: Tensor, features: Tensor, labels: Tensor) -> list[Formed]:
        own = 0 if labels.dim() == 2 else None
        per_record = vmap(grad(loss), in_dims=(None, 0, 0))
        per_trial = vmap(per_record, in_dims=(0, own, own))
        # Fused attention kernels cannot be vectorised twice.
        with reduced(precision, features.device), sdpa_kernel(SDPBackend.MATH):
            by_name = per_trial(unflatten(parameters, shapes), features, labels)
        shape = (len(parameters), labels.shape[-1], -1)
        return [Formed(gradient.reshape(shape)) for gradient in by_name.values()]

    return gradients


def clipped(
    gradients: Sequence[Gradient], clipping_norm: float | Tensor, exact: bool
) -> tuple[Sequence[Gradient], Tensor]:
    """Return gradients and their clipping factors, [T, n], in the type of the sum.

    exact: whether to add in float64, with zeros for gradients that are not finite. An error would
    reveal something about a record to the server, which chose the model, without a charge.
    The factor of a gradient that is not finite is NaN, unless exact.
    """
    norms = joint_norms(gradients)
    if exact and bool((dropped := ~torch.isfinite(norms)).any()):
        gradients = [gradient.without(dropped) for gradient in gradients]
        norms = norms.masked_fill(dropped, 0.0)
    factors = clipping_factors(norms, clipping_norm)
    return gradients, factors if exact else factors.float()


def joint_norms(gradients: Sequence[Gradient]) -> Tensor:
    """Return the norms over all parameters together, float64 [T, n], never too small."""
    return torch.stack([gradient.norms() for gradient in gradients]).square().sum(0).sqrt()


def clipping_factors(norms: Tensor, clipping_norm: float | Tensor) -> Tensor:
    """Return min(1, C (1 - MARGIN)/|g|), float64; NaN for a norm that is not finite.

    No gradient times its factor is longer than C, for any model, because |g| is never too small. A
    NaN makes every sum NaN, which `check_finite` refuses once for all blocks: asking each of them
    would make the CPU wait for a GPU.
    """
    return (clipping_norm * (1 - MARGIN) / norms).clamp(max=1.0) + 0.0 * norms


def check_finite(total: Tensor) -> None:
    """Raise FloatingPointError unless all sums [T, ...] are finite."""
    _finite(total.sum(dtype=torch.float64))


def check_lengths(gradients: Tensor, clipping_norm: float) -> None:
    """Raise RuntimeError if a clipped gradient [..., P] is too long, or as `check_finite` does."""
    norms = torch.linalg.vector_norm(gradients, dim=-1)
    if norms.numel() and (longest := _finite(norms.max())) > clipping_norm * (1 + 1e-5):
        raise RuntimeError(
            f"a clipped gradient has norm {longest}, above {clipping_norm}: clipping is broken"
        )


def _finite(value: Tensor) -> float:
    """Return a number of the device; the CPU waits for it once."""
    if not math.isfinite(number := float(value)):
        raise FloatingPointError(
            "a per-example gradient is not finite: the model diverged; "
            "lower training.learning-rate or training.clipping-norm"
        )
    return number
