"""DP-SGD on Poisson samples without a federation, of several models at once."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedsim.common.randomness import gaussian_noise
from fedsim.learning.training.clipping import Clipper
from fedsim.privacy.participation.sampling import participation

SERVER = 0
"""Whose random stream the noise has."""


@dataclass(frozen=True)
class Steps:
    """How models are trained.

    Attributes:
        count: of noisy steps.
        sampling_rate: q, with which every record takes part in a step.
        noise_multiplier: of the clipping norm; 0 for none.
        learning_rate: of the sum over the expected number of records.
    """

    count: int
    sampling_rate: float
    noise_multiplier: float
    learning_rate: float


def train(
    clipper: Clipper,
    theta: Tensor,
    features: Tensor,
    labels: Tensor,
    steps: Steps,
    seed: int,
) -> Tensor:
    """Return models after their noisy steps, float32 [T, P].

    Args:
        theta: first models, float32 [T, P].
        features: [n, *shape], the same records for all.
        labels: [n].
        seed: of samples and noise, which are a function of it, the model and the step alone.
    """
    models, records = range(len(theta)), len(labels)
    rate = steps.learning_rate / (steps.sampling_rate * records)
    for step in range(1, steps.count + 1):
        coins = participation(seed, models, step, records, steps.sampling_rate)
        weights = None if coins is None else torch.from_numpy(coins).to(theta)
        total = clipper.clipped_sum(theta, features, labels, weights)
        if steps.noise_multiplier:
            noise = gaussian_noise(seed, models, step, SERVER, theta.shape[1])
            total += steps.noise_multiplier * clipper.clipping_norm * torch.from_numpy(noise)
        theta = theta - (rate * total).float()
    return theta
