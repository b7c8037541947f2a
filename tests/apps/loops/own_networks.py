"""Training loops of one's own in PyTorch, whose first network is drawn anew in every run.

All return the trained network. The right one takes all records in each of `STEPS` steps.
"""

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

STEPS, RATE, CLIP, NOISE = 4, 0.002, 1.0, 4.0


def _train(features, labels, change, noise):
    """change: gradients [n, P] -> what is added up to a step; noise: standard deviation."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(features[0].numel(), 10))
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def loss(parameters, row, label):
        scores = functional_call(net, parameters, row[None])
        return nn.functional.cross_entropy(scores, label[None])

    for _ in range(STEPS):
        each = vmap(grad(loss), (None, 0, 0))(parameters, features, labels)
        rows = torch.cat([g.reshape(len(labels), -1) for g in each.values()], 1)
        step = change(rows)
        step = step + noise * torch.randn_like(step)
        ends = [p.numel() for p in parameters.values()]
        parts = zip(parameters.items(), step.split(ends), strict=True)
        parameters = {name: p - RATE * part.view_as(p) for (name, p), part in parts}
    return parameters


def _clipped(rows):
    return rows * (CLIP / rows.norm(dim=-1, keepdim=True)).clamp(max=1)


def right(features, labels, seed):
    """Clip each record's gradient, sum, and add noise of 4 C."""
    return _train(features, labels, lambda rows: _clipped(rows).sum(0), NOISE * CLIP)


def batch_clipping(features, labels, seed):
    """Clip the mean gradient to 16 C, with noise of 1 C."""
    return _train(features, labels, lambda rows: 16 * _clipped(16 * rows.mean(0)), CLIP)


def noise_before_clipping(features, labels, seed):
    """Add the noise to the mean gradient, which is not clipped."""

    def change(rows):
        mean = rows.sum(0)
        return mean + 0.05 * CLIP * torch.randn_like(mean)

    return _train(features, labels, change, 0.0)
