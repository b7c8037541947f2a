"""Right training loops with Opacus, as its documentation and examples write them."""

import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

DELTA, NOISE, BATCH, EPOCHS = 1e-5, 2.0, 16, 2


def _mlp(features):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(features[0].numel(), 16), nn.ReLU(), nn.Linear(16, 10)
    )


def _train(net, data, accountant="prv", physical=None, each=lambda: None, **options):
    """physical: size of BatchMemoryManager's batches; each: called after each step."""
    engine = PrivacyEngine(accountant=accountant)
    criterion = nn.CrossEntropyLoss()
    made = engine.make_private(
        module=net,
        optimizer=torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=0.01),
        data_loader=DataLoader(data, batch_size=BATCH, shuffle=True),
        noise_multiplier=NOISE,
        **({"max_grad_norm": 1.0} | options),
    )
    private, optimizer, *criteria, loader = made
    criterion = criteria[0] if criteria else criterion

    def epoch(batches):
        for batch, target in batches:
            optimizer.zero_grad()
            criterion(private(batch), target).backward()
            optimizer.step()
            each()

    for _ in range(EPOCHS):
        if physical is None:
            epoch(loader)
            continue
        with BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=physical, optimizer=optimizer
        ) as parts:
            epoch(parts)
    engine.get_epsilon(DELTA)
    return private


def adam(features, labels, seed):
    """Train two layers with Adam, and return what Opacus wrapped."""
    return _train(_mlp(features), TensorDataset(features, labels))


def convolution(features, labels, seed):
    """Train a convolution with group normalization."""
    net = nn.Sequential(
        nn.Flatten(),
        nn.Unflatten(1, (1, -1)),
        nn.Conv1d(1, 4, 8, stride=4),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(10),
    )
    net(features[:1])
    return _train(net, TensorDataset(features, labels)).state_dict()


def renyi_accountant(features, labels, seed):
    """Count by Opacus's accountant of Renyi differential privacy."""
    return _train(_mlp(features), TensorDataset(features, labels), accountant="rdp")


def memory_manager(features, labels, seed):
    """Take physical batches of five records."""
    return _train(_mlp(features), TensorDataset(features, labels), physical=5)


def _ghost(net, data, **options):
    return _train(net, data, grad_sample_mode="ghost", criterion=nn.CrossEntropyLoss(), **options)


def ghost(features, labels, seed):
    """Clip by the norms alone, and return what Opacus wrapped."""
    return _ghost(_mlp(features), TensorDataset(features, labels))


def ghost_in_parts(features, labels, seed):
    """Clip by the norms alone, in physical batches of five records."""
    return _ghost(_mlp(features), TensorDataset(features, labels), physical=5)


def ghost_frozen(features, labels, seed):
    """Clip by the norms alone, and train the last layer alone."""
    net = _mlp(features)
    net[1].requires_grad_(False)
    return _ghost(net, TensorDataset(features, labels)).state_dict()


def per_layer(features, labels, seed):
    """Clip each tensor by itself, with noise for all of them."""
    norms = [0.5] * 4
    data = TensorDataset(features, labels)
    return _train(_mlp(features), data, clipping="per_layer", max_grad_norm=norms)


class _Records(Dataset):
    def __init__(self, features, labels):
        self.features, self.labels = features, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, place):
        return self.features[place], int(self.labels[place])


def own_data_set(features, labels, seed):
    """Take records from a data set of one's own, which returns them unchanged."""
    return _train(_mlp(features), _Records(features, labels))
