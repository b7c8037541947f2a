"""A worst-case first model, fitted to all other records, whose gradients then hide nothing."""

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedsim.learning.training.models import parameter_shapes, unflatten
from fedsim.learning.training.tasks import task_of

STEPS, LEARNING_RATE = 200, 0.01
"""Full-batch steps of Adam (Kingma and Ba, 2015, with its other defaults)."""


def fitted(model: nn.Module, start: Tensor, features: Tensor, labels: Tensor) -> Tensor:
    """Return the parameters [P] after `STEPS` steps of Adam on the mean loss, from `start` [P]."""
    shapes = parameter_shapes(model)
    shares = task_of(model).shares_of_norm(labels)
    flat = start.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([flat], lr=LEARNING_RATE)
    with torch.enable_grad():
        for _ in range(STEPS):
            optimizer.zero_grad()
            outputs = functional_call(model, unflatten(flat, shapes), (features,))
            losses = task_of(model).loss(outputs, labels)
            (losses if shares is None else losses * shares.to(losses)).mean().backward()
            optimizer.step()
    return flat.detach()
