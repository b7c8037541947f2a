"""Small models trained with Opacus, whose noise is a share of the configured one.

The name of a function says the model and the share: `parameters_15_noise_at_80`. Every share has
its loop: the optimizer's multiplier, and what its accountant is told, are those of all the noise.
"""

from collections.abc import Callable

import torch
from opacus import GradSampleModule
from opacus.accountants import RDPAccountant
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DELTA, NOISE, BATCH, EPOCHS = 1e-5, 2.0, 16, 1

SIZES = {7: (6, 1), 15: (14, 1), 62: (30, 2), 650: (64, 10)}
"""Parameters -> features and outputs of the linear model."""


class _Less(DPOptimizer):
    """Adds a share of the noise that it says."""

    share = 1.0

    def add_noise(self):
        configured = self.noise_multiplier
        self.noise_multiplier = configured * self.share
        super().add_noise()
        self.noise_multiplier = configured


def _loss(scores, labels):
    if scores.shape[1] > 1:
        return nn.functional.cross_entropy(scores, labels)
    return nn.functional.binary_cross_entropy_with_logits(scores[:, 0], labels.float())


def _train(features, labels, parameters, share):
    width, outputs = SIZES[parameters]
    net, accountant = nn.Linear(width, outputs), RDPAccountant()
    rows = features.flatten(1)[:, :width]
    batches = DataLoader(TensorDataset(rows, labels), batch_size=BATCH, shuffle=True)
    loader = DPDataLoader.from_data_loader(batches)
    private = GradSampleModule(net)
    kind = DPOptimizer if share == 1 else type("Less", (_Less,), {"share": share})
    optimizer = kind(
        torch.optim.SGD(net.parameters(), lr=0.1),
        noise_multiplier=NOISE,
        max_grad_norm=1.0,
        expected_batch_size=len(labels) // len(loader),
    )
    optimizer.attach_step_hook(accountant.get_optimizer_hook_fn(sample_rate=1 / len(loader)))
    for _ in range(EPOCHS):
        for batch, target in loader:
            optimizer.zero_grad()
            _loss(private(batch), target).backward()
            optimizer.step()
    accountant.get_epsilon(DELTA)
    return net


def __getattr__(name: str) -> Callable[..., nn.Module]:
    _, parameters, *_, percent = name.split("_")
    if not name.startswith("parameters_"):
        raise AttributeError(name)

    def train(features, labels, seed):
        return _train(features, labels, int(parameters), int(percent) / 100)

    return train
