"""DP-SGD without a federation, held against a loop of its own."""

import numpy as np
import torch
from torch import nn

from fedsim.common.randomness import gaussian_noise
from fedsim.learning.training.clipping import Clipper
from fedsim.learning.training.models import flatten
from fedsim.privacy.participation.sampling import participation
from papers.abadi.accuracies import SERVER, SampledSteps, train_on_samples


def test_a_step_is_the_clipped_sum_of_its_sample_with_noise_over_the_expected_size():
    torch.manual_seed(1)
    model = nn.Linear(3, 2)
    features, labels = torch.randn(40, 3), torch.randint(2, (40,))
    theta = flatten(model).detach()[None].repeat(2, 1)
    steps = SampledSteps(1, 0.25, 2.0, 0.1)
    after = train_on_samples(Clipper(model, 0.5), theta, features, labels, steps, seed=3)
    coins = participation(3, range(2), 1, 40, 0.25)
    noise = gaussian_noise(3, range(2), 1, SERVER, theta.shape[1])
    assert coins is not None
    assert coins[0].sum() != coins[1].sum()
    for trial in range(2):
        total = np.zeros(theta.shape[1])
        for record in np.flatnonzero(coins[trial]):
            loss = nn.functional.cross_entropy(model(features[record]), labels[record])
            gradients = torch.autograd.grad(loss, tuple(model.parameters()))
            gradient = torch.cat([one.flatten() for one in gradients]).double().numpy()
            total += gradient * min(1, 0.5 / np.linalg.norm(gradient))
        expected = theta[trial].numpy() - 0.1 / 10 * (total + 2.0 * 0.5 * noise[trial])
        np.testing.assert_allclose(after[trial].numpy(), expected, atol=1e-6)
