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
    shape = (len(parameters), len(labels))
    losses = torch.empty(shape, dtype=torch.float64, device=parameters.device)
    scores = torch.empty(shape, dtype=torch.float32, device=parameters.device)
    task = task_of(model)

    def judge(trials: slice, records: slice, outputs: Tensor) -> None:
        targets = labels[records].expand(outputs.shape[:2])
        # In float64 the loss of a confident answer does not round to 0.
        losses[trials, records] = task.loss(outputs.double(), targets)
        scores[trials, records] = task.score(outputs, targets).float()

    _in_blocks(model, parameters, features, judge, threads)
    return losses, scores


def outputs(model: nn.Module, parameters: Tensor, features: Tensor, threads: int = 1) -> Tensor:
    """Return the outputs of T models for at least one record, [T, n, c]."""
    first = logits(model, parameters[:1], features[:1])
    every_output = first.new_empty(len(parameters), len(features), first.shape[-1])

    def keep(trials: slice, records: slice, outputs: Tensor) -> None:
        every_output[trials, records] = outputs

    _in_blocks(model, parameters, features, keep, threads)
    return every_output


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


@torch.no_grad()
def _in_blocks(
    model: nn.Module,
    parameters: Tensor,
    features: Tensor,
    take: Callable[[slice, slice, Tensor], None],
    threads: int,
) -> None:
    """Compute the outputs of T models block by block; `take` gets trials, records and outputs."""
    if not len(parameters) or not len(features):
        return
    budget = BLOCK_SCALARS[parameters.device.type]
    examples = max(1, budget // (OUTPUT_PER_INPUT * max(1, features[:1].numel())))
    records_at_once = max(1, min(len(features), examples))
    trials_at_once = max(1, min(examples // records_at_once, budget // parameters.shape[1]))
    forwards = _forwards(model, features.shape[1:], features.dtype, features.device)

    def block(trials: slice, records: slice) -> None:
        with forwards.lend() as forward, torch.no_grad():  # each thread has its own setting
            take(trials, records, forward(parameters[trials], features[records]))

    blocks = cutting.blocks(len(parameters), trials_at_once, len(features), records_at_once)
    for _ in run(block, blocks, threads):
        pass


@torch.no_grad()
def logits(model: nn.Module, parameters: Tensor, features: Tensor) -> Tensor:
    """Return the outputs of T models for a few records, [T, n, c]."""
    budget = BLOCK_SCALARS[parameters.device.type]
    each = max(parameters.shape[1], OUTPUT_PER_INPUT * features.numel())
    forwards = _forwards(model, features.shape[1:], features.dtype, features.device)
    with forwards.lend() as forward:
        parts = slices(len(parameters), max(1, budget // each))
        return torch.cat([forward(parameters[part], features) for part in parts])


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
