"""Training loops with Opacus as it is installed: the right one, and ways in which it goes wrong."""

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

DELTA = 1e-5
NOISE, BATCH, EPOCHS, ROUNDS = 2.0, 16, 2, 20


def model(features: torch.Tensor) -> nn.Module:
    """Return softmax regression of ten classes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(features[0].numel(), 10))


def _train(net, engine, loader, noise=NOISE, epochs=EPOCHS, **options):
    private, optimizer, loader = engine.make_private(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
        data_loader=loader,
        noise_multiplier=noise,
        max_grad_norm=options.pop("max_grad_norm", 1.0),
        **options,
    )
    for _ in range(epochs):
        for batch, target in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(private(batch), target).backward()
            optimizer.step()
    return net


def _loader(features, labels, **options):
    options = {"batch_size": BATCH, "shuffle": True} | options
    return DataLoader(TensorDataset(features, labels), **options)


def correct(features, labels, seed, noise=NOISE, epochs=EPOCHS):
    """Train as Opacus's own documentation says."""
    net, engine = model(features), PrivacyEngine(accountant="rdp")
    _train(net, engine, _loader(features, labels), noise, epochs)
    engine.get_epsilon(DELTA)
    return net


def full_batch(features, labels, seed):
    """Take all records in every step."""
    net, engine = model(features), PrivacyEngine(accountant="rdp")
    loader = _loader(features, labels, batch_size=len(labels))
    _train(net, engine, loader, noise=8.0, epochs=8)
    engine.get_epsilon(DELTA)
    return net


def fixed_batches(features, labels, seed):
    """Keep PyTorch's batches of one size, with the accountant that counts on Poisson's."""
    net, engine = model(features), PrivacyEngine(accountant="rdp")
    _train(net, engine, _loader(features, labels), poisson_sampling=False)
    engine.get_epsilon(DELTA)
    return net


def weighted(features, labels, seed):
    """Draw rare classes more often."""
    counts = torch.bincount(labels, minlength=10).double()
    draws = WeightedRandomSampler(1 / counts[labels], len(labels))
    net, engine = model(features), PrivacyEngine(accountant="rdp")
    loader = _loader(features, labels, shuffle=False, sampler=draws)
    _train(net, engine, loader, poisson_sampling=False)
    engine.get_epsilon(DELTA)
    return net


def rebuilt(features, labels, seed, persistent=False):
    """Make a new engine in every round, and say what the last one spent."""
    net, engine = model(features), PrivacyEngine(accountant="rdp")
    for _ in range(ROUNDS):
        if not persistent:
            engine = PrivacyEngine(accountant="rdp")
        plain = model(features)
        plain.load_state_dict(net.state_dict())
        net = plain
        _train(net, engine, _loader(features, labels), epochs=1)
    engine.get_epsilon(DELTA)
    return net


def persistent(features, labels, seed):
    """Make a new optimizer in every round, with one accountant for all."""
    return rebuilt(features, labels, seed, persistent=True)


def per_layer(features, labels, seed):
    """Clip each layer's gradient by itself, as Opacus does, which scales the noise to all."""
    net, engine = model(features), PrivacyEngine(accountant="rdp")
    norms = [0.8, 0.6]
    loader = _loader(features, labels)
    _train(net, engine, loader, clipping="per_layer", max_grad_norm=norms)
    engine.get_epsilon(DELTA)
    return net
