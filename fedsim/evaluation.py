"""Losses and predictions of T models on the same records."""

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fedsim.losses import correct, per_example
from fedsim.models import parameter_shapes, unflatten

BLOCK_SCALARS = {"cpu": 2**23, "cuda": 2**28}
"""Scalars of parameters, and about as many of layer outputs, in one block: 32 MiB and 1 GiB."""

OUTPUT_PER_INPUT = 16
"""Scalars of the largest layer output for one of the input, roughly: images grow so in a CNN."""


@torch.no_grad()
def evaluate(
    model: nn.Module, parameters: Tensor, features: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy loss float64 [T, n] and the correctness bool [T, n].

    parameters [T, P], features [n, *shape], labels [n].
    """
    shapes = parameter_shapes(model)

    def logits(flat: Tensor, records: Tensor) -> Tensor:
        output: Tensor = functional_call(model, unflatten(flat, shapes), (records,))
        return output

    budget = BLOCK_SCALARS[parameters.device.type]
    examples = max(1, budget // (OUTPUT_PER_INPUT * max(1, features[:1].numel())))
    records_at_once = max(1, min(len(labels), examples))
    trials_at_once = max(1, min(examples // records_at_once, budget // parameters.shape[1]))
    shape = (len(parameters), len(labels))
    losses = torch.empty(shape, dtype=torch.float64, device=parameters.device)
    is_correct = torch.empty(shape, dtype=torch.bool, device=parameters.device)
    for first in range(0, len(parameters), trials_at_once):
        trials = slice(first, first + trials_at_once)
        for start in range(0, len(labels), records_at_once):
            records = slice(start, start + records_at_once)
            outputs = vmap(logits, in_dims=(0, None))(parameters[trials], features[records])
            targets = labels[records].expand(outputs.shape[:2])
            losses[trials, records] = per_example(outputs, targets).double()
            is_correct[trials, records] = correct(outputs, targets)
    return losses, is_correct
