"""Losses and predictions of T models on the same records."""

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from fedsim.models import parameter_shapes, unflatten

BLOCK_RECORDS = 512
"""Forward passes in one block: what bounds memory."""


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

    step = max(1, BLOCK_RECORDS // len(labels))
    losses, correct = [], []
    for trials in parameters.split(step):
        outputs = vmap(logits, in_dims=(0, None))(trials, features)
        flat_labels = labels.repeat(len(trials))
        loss = functional.cross_entropy(outputs.flatten(0, 1), flat_labels, reduction="none")
        losses.append(loss.double().unflatten(0, (len(trials), len(labels))))
        correct.append(outputs.argmax(-1) == labels)
    return torch.cat(losses), torch.cat(correct)
