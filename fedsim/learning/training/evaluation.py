"""Losses and predictions of T models on the same records.

Parameters are float32 [T, P], features [n, *shape] and labels [n] integers.
"""

import copy
from collections.abc import Callable
from functools import lru_cache, partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedsim.common.blocks import ThreadPool, run, slices
from fedsim.learning.training import cutting
from fedsim.learning.training.layerwise import LayerwiseModel, fallbacks
from fedsim.learning.training.models import parameter_shapes, unflatten
from fedsim.learning.training.tasks import task_of

BLOCK_SCALARS = {"cpu": 2**22, "cuda": 2**28}
"""Scalars of parameters, and about as many layer outputs, in a block: 16 MiB and 1 GiB."""

OUTPUTS_AT_ONCE = 2**24
"""Largest number of output scalars that are kept at a time: 64 MiB."""

OUTPUT_PER_INPUT = 16
"""Rough number of scalars in the largest layer output per input scalar, in a CNN."""

Forward = Callable[[Tensor, Tensor], Tensor]
"""Parameters [T, P], features [n, *shape] -> logits [T, n, c]."""


def evaluate(
    model: nn.Module, parameters: Tensor, features: Tensor, labels: Tensor, threads: int = 1
) -> tuple[Tensor, Tensor]:
    """Return losses, float64 [T, n], and scores, float32 [T, n], of T models by their task."""
    task = task_of(model)

    def judge(outputs: Tensor, records: slice) -> tuple[Tensor, Tensor]:
        targets = labels[records].expand(outputs.shape[:2])
        # In float64 the loss of a confident answer does not round to 0.
        return task.loss(outputs.double(), targets), task.score(outputs, targets).float()

    if not len(parameters) or not len(labels):
        none = parameters.new_empty(len(parameters), len(labels))
        return none.double(), none
    losses, scores = _in_blocks(model, parameters, features, judge, threads)
    return losses, scores


def outputs(model: nn.Module, parameters: Tensor, features: Tensor, threads: int = 1) -> Tensor:
    """Return the outputs of T models for n records, [T, n, c]; both at least one."""
    (every,) = _in_blocks(model, parameters, features, lambda outputs, _: (outputs,), threads)
    return every


def measures(
    model: nn.Module,
    parameters: Tensor,
    features: Tensor,
    labels: Tensor,
    classes: int,
    threads: int = 1,
) -> dict[str, Tensor]:
    """Return further measures of T models, [T, ...] each, by the models' task."""
    task = task_of(model)
    parts = [
        task.of_trials(partial(outputs, model, parameters[part], features, threads), labels)
        for part in slices(len(parameters), max(1, OUTPUTS_AT_ONCE // (len(labels) * classes)))
    ]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _in_blocks(
    model: nn.Module,
    parameters: Tensor,
    features: Tensor,
    of: Callable[[Tensor, slice], tuple[Tensor, ...]],
    threads: int,
) -> list[Tensor]:
    """Return what `of` makes of each block's outputs and records, joined: [T, n, ...] each."""
    budget = BLOCK_SCALARS[parameters.device.type]
    examples = max(1, budget // (OUTPUT_PER_INPUT * max(1, features[:1].numel())))
    records_at_once = max(1, min(len(features), examples))
    trials_at_once = max(1, min(examples // records_at_once, budget // parameters.shape[1]))
    forwards = _forwards(model, features.shape[1:], features.dtype, features.device)

    def block(trials: slice, records: slice) -> tuple[Tensor, ...]:
        with forwards.lend() as forward, torch.no_grad():  # each thread has its own setting
            return of(forward(parameters[trials], features[records]), records)

    blocks = cutting.blocks(len(parameters), trials_at_once, len(features), records_at_once)
    joined: list[Tensor] = []
    for place, parts in zip(blocks, run(block, blocks, threads), strict=True):
        shape = len(parameters), len(features)
        joined = joined or [part.new_empty(*shape, *part.shape[2:]) for part in parts]
        for whole, part in zip(joined, parts, strict=True):
            whole[place] = part
    return joined


@lru_cache(maxsize=4)
def _forwards(
    model: nn.Module, shape: torch.Size, dtype: torch.dtype, device: torch.device
) -> ThreadPool[Forward]:
    with torch.enable_grad():
        layerwise = "" not in fallbacks(model, torch.zeros(shape, dtype=dtype, device=device))
    if layerwise:
        return ThreadPool(lambda: LayerwiseModel(model).logits)
    return ThreadPool(lambda: _by_torch_func(copy.deepcopy(model)))


def _by_torch_func(model: nn.Module) -> Forward:
    """Return forward passes through a module that one thread uses: they change it temporarily."""
    shapes = parameter_shapes(model)

    def logits(flat: Tensor, records: Tensor) -> Tensor:
        return functional_call(model, unflatten(flat, shapes), (records,))

    def every(parameters: Tensor, records: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):  # fused attention cannot be vectorised over models
            return vmap(logits, in_dims=(0, None))(parameters, records)

    return every
