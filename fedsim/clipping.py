"""Per-example clipped gradients of T models at once.

Trials are the leading axis: parameters are [T, P], and the inclusion of a record in a trial is a
weight on its clipped gradient, so that both worlds of the challenge are one computation. Gradients
come layer by layer from one backward pass (`fedsim.layers`) where every layer has a rule, and else
from `torch.func`, in blocks of trials and records that bound the memory of each thread.
"""

import copy
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from fedsim.layers import Dense, Fit, Gradient, LayerwiseModel, fit
from fedsim.models import parameter_shapes, unflatten

BLOCK_GRADIENTS = {"cpu": 2**22, "cuda": 2**28}
"""Scalars of per-example gradient in one block: 16 MiB for a core, 1 GiB for a GPU."""

BLOCK_SCALARS = {"cpu": 2**20, "cuda": 2**28}
"""Scalars of layer inputs and gradients in one layer-by-layer block: 4 MiB, which a core's cache
nearly holds, and 1 GiB."""

BLOCK_TRIALS = 4
"""Trials in one layer-by-layer block of many records: enough to share the first layer's input."""


@dataclass(frozen=True)
class Clipper:
    """Clips the gradient of every record over all parameters together.

    `model` gives the structure only; the values come with each call as [T, P] float32.
    `threads` work on different trials, so their number does not change a result.
    """

    model: nn.Module
    clipping_norm: float
    threads: int = 1
    _fits: dict[tuple[torch.Size, torch.device], Fit] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def clipped_sum(
        self, parameters: Tensor, features: Tensor, labels: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Return sum_x w(x) g(x) min(1, C/|g(x)|) as float64 [T, P].

        features [n, *shape], labels [n], weights [T, n] (None: all ones). Raises
        FloatingPointError if a gradient is not finite, which clipping would otherwise hide.
        """
        total = torch.zeros(parameters.shape, dtype=torch.float64, device=parameters.device)
        if not len(labels):
            return total
        if parameters.device.type == "cpu":
            _keep_freed_memory()
        layerwise = self._fit(features[0])
        if layerwise.refusal is None:
            examples = max(1, BLOCK_SCALARS[parameters.device.type] // layerwise.scalars)
            together = min(len(parameters), BLOCK_TRIALS)
            records_at_once = max(1, min(len(labels), examples // together))
            trials_at_once = max(1, examples // records_at_once)
        else:
            records_at_once, trials_at_once = self._block(parameters, len(labels))

        def sum_of(trials: slice) -> None:
            # A pass swaps parameters into the module: each thread needs one of its own.
            gradients_of = (
                LayerwiseModel(self.model).gradients
                if layerwise.refusal is None
                else replace(self, model=copy.deepcopy(self.model))._gradients
            )
            for records in _slices(len(labels), records_at_once):
                gradients = gradients_of(parameters[trials], features[records], labels[records])
                scale = clipping_factors(gradients, self.clipping_norm)
                if weights is not None:
                    scale = scale * weights[trials, records]
                # w = 0 must remove a record exactly, and 0 * g does for every finite g.
                total[trials] += torch.cat(
                    [gradient.weighted_sum(scale) for gradient in gradients], dim=-1
                ).double()

        blocks = list(_slices(len(parameters), trials_at_once))
        if self.threads > 1 and parameters.device.type == "cpu":
            with ThreadPoolExecutor(self.threads) as pool:
                list(pool.map(sum_of, blocks))
        else:
            for block in blocks:
                sum_of(block)
        return total

    def clipped_gradients(self, parameters: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """Return the clipped gradient of each of n (a few) records, float64 [T, n, P]."""
        _, trials_at_once = self._block(parameters, len(labels))
        parts = []
        for trials in _slices(len(parameters), trials_at_once):
            gradients = self._gradients(parameters[trials], features, labels)
            scale = clipping_factors(gradients, self.clipping_norm)
            values = torch.cat([gradient.values for gradient in gradients], dim=-1)
            parts.append(values.double() * scale.double()[..., None])
        return torch.cat(parts)

    def fallback_reason(self, record: Tensor) -> str | None:
        """Return why records of this shape go through `torch.func`; None if they need not."""
        return self._fit(record).refusal

    def _fit(self, record: Tensor) -> Fit:
        kind = (record.shape, record.device)
        if kind not in self._fits:
            self._fits[kind] = fit(self.model, record)
        return self._fits[kind]

    def _block(self, parameters: Tensor, records: int) -> tuple[int, int]:
        budget = BLOCK_GRADIENTS[parameters.device.type]
        examples = max(1, budget // parameters.shape[1])
        records_at_once = max(1, min(records, examples))
        return records_at_once, max(1, examples // records_at_once)

    def _gradients(self, parameters: Tensor, features: Tensor, labels: Tensor) -> list[Dense]:
        """Return the unclipped gradients by `torch.func`, one item for each parameter in order."""
        per_record = vmap(grad(self._loss), in_dims=(None, 0, 0))
        per_trial = vmap(per_record, in_dims=(0, None, None))
        gradients = per_trial(unflatten(parameters, parameter_shapes(self.model)), features, labels)
        return [Dense(gradient.flatten(2)) for gradient in gradients.values()]

    def _loss(self, parameters: dict[str, Tensor], feature: Tensor, label: Tensor) -> Tensor:
        logits = functional_call(self.model, parameters, (feature[None],))
        return functional.cross_entropy(logits, label[None])


def clipping_factors(gradients: Sequence[Gradient], clipping_norm: float) -> Tensor:
    """Return min(1, C/|g|) [T, n]; g is all the gradients together."""
    norms = torch.stack([gradient.squared_norms() for gradient in gradients]).sum(0).sqrt()
    if not bool(torch.isfinite(norms).all()):
        raise FloatingPointError(
            "a per-example gradient is not finite: the model diverged; "
            "lower training.learning-rate or training.clipping-norm"
        )
    return (clipping_norm / norms).clamp(max=1.0)


@cache
def _keep_freed_memory() -> None:
    """Keep glibc from returning every block's memory to the kernel, to be faulted in again.

    Freeing one large allocation raises its thresholds, up to 32 MiB (mallopt(3),
    M_MMAP_THRESHOLD); the memory of this one is never touched. Elsewhere it does nothing.
    """
    torch.empty(2**25 - 2**15, dtype=torch.uint8)


def _slices(length: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, length)) for start in range(0, length, step))
