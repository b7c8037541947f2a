"""A worst-case first model, fitted to all records except the challenge.

Differential privacy allows the adversary to choose theta_0. Once the model fits the other records,
their gradients are near 0 and do not hide the challenge, whose gradient is as long as clipping
allows. The fit uses the data without noise: it is an instrument, never part of a release.
"""

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedsim.learning.training.models import parameter_shapes, unflatten
from fedsim.learning.training.tasks import task_of

STEPS, LEARNING_RATE = 200, 0.01
"""Full-batch steps of Adam (Kingma and Ba, 2015, with its other defaults)."""


def fitted(model: nn.Module, start: Tensor, features: Tensor, labels: Tensor) -> Tensor:
    """Return the parameters [P] after `STEPS` steps of Adam on the mean loss.

    start: [P], on the device of model, features and labels; it is not changed.
    features: [n, *shape].
    labels: [n] integers.
    """
    shapes = parameter_shapes(model)
    flat = start.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([flat], lr=LEARNING_RATE)
    with torch.enable_grad():
        for _ in range(STEPS):
            optimizer.zero_grad()
            outputs = functional_call(model, unflatten(flat, shapes), (features,))
            task_of(model).objective(outputs, labels).mean().backward()
            optimizer.step()
    return flat.detach()
