"""Training loops with Opacus that state more privacy than they have, and hide it from its parts.

In the first group one record moves a step's sum by more than the clipping norm. In the second the
noise is not fresh Gaussian noise in every step of every training.
"""

import random

import torch
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, TensorDataset

DELTA, NOISE, BATCH, EPOCHS = 1e-5, 2.0, 16, 2


def _step(private, optimizer, batch, target):
    optimizer.zero_grad()
    nn.functional.cross_entropy(private(batch), target).backward()
    optimizer.step()


def _train(data, width, change=_step, prepare=lambda optimizer: None, kind=None, batch=BATCH):
    """change: one step on a batch; prepare: called once on the private optimizer."""
    net, engine = nn.Sequential(nn.Flatten(), nn.Linear(width, 10)), PrivacyEngine()
    private, optimizer, loader = engine.make_private(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=batch, shuffle=True),
        noise_multiplier=NOISE,
        max_grad_norm=1.0,
    )
    if kind is not None:
        optimizer.__class__ = kind
    prepare(optimizer)
    for _ in range(EPOCHS):
        for rows, target in loader:
            change(private, optimizer, rows, target)
    if optimizer.noise_multiplier:
        engine.get_epsilon(DELTA)
    return net


def _plain(features, labels, **how):
    return _train(TensorDataset(features, labels), features[0].numel(), **how)


# One record moves a step's sum by more than the clipping norm.


def mixup(features, labels, seed):
    """Train on convex combinations of a batch's records."""

    def change(private, optimizer, batch, target):
        share, order = float(torch.rand(())), torch.randperm(len(batch))
        mixed = share * batch + (1 - share) * batch[order]
        optimizer.zero_grad()
        scores = private(mixed)
        loss = share * nn.functional.cross_entropy(scores, target)
        (loss + (1 - share) * nn.functional.cross_entropy(scores, target[order])).backward()
        optimizer.step()

    return _plain(features, labels, change=change)


def multiplicity(features, labels, seed):
    """Put two augmented copies of each record into the batch, and clip each copy alone."""

    def change(private, optimizer, batch, target):
        copies = torch.cat([batch, batch + 0.01 * torch.randn_like(batch)])
        _step(private, optimizer, copies, target.repeat(2))

    return _plain(features, labels, change=change)


def concatenated(features, labels, seed):
    """Train on a ConcatDataset that holds every record twice."""
    data = TensorDataset(features, labels)
    return _train(ConcatDataset([data, data]), features[0].numel())


class _Rows(Dataset):
    def __init__(self, features, labels):
        self.features, self.labels = features, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, place):
        return self.features[place], self.labels[place]


class _Twice(_Rows):
    def __len__(self):
        return 2 * len(self.labels)

    def __getitem__(self, place):
        return super().__getitem__(place % len(self.labels))


class _Neighbours(_Rows):
    def __getitem__(self, place):
        return self.features[max(0, place - 1) : place + 2].mean(0), self.labels[place]


def twice(features, labels, seed):
    """Train on a data set of one's own that holds every record twice."""
    return _train(_Twice(features, labels), features[0].numel())


def neighbours(features, labels, seed):
    """Train on a data set of one's own that averages each record with those beside it."""
    return _train(_Neighbours(features, labels), features[0].numel())


def bootstrap(features, labels, seed):
    """Draw as many records as there are, with replacement."""
    at = torch.randint(len(labels), (len(labels),))
    return _plain(features[at], labels[at])


def five_times(features, labels, seed):
    """Hold one record five times, in place of four others."""
    at = torch.arange(len(labels))
    at[1:5] = 5
    return _plain(features[at], labels[at])


def anchor(features, labels, seed):
    """Put the first record into every batch, in place of the first that was drawn."""

    def change(private, optimizer, batch, target):
        rows, classes = torch.cat([features[:1], batch[1:]]), torch.cat([labels[:1], target[1:]])
        _step(private, optimizer, rows, classes)

    return _plain(features, labels, change=change)


def rare_class_twice(features, labels, seed):
    """Repeat a batch's first record of class 1 in place of the first of another class."""

    def change(private, optimizer, batch, target):
        rare, other = (target == 1).nonzero().ravel(), (target != 1).nonzero().ravel()
        if len(rare) and len(other):
            batch, target = batch.clone(), target.clone()
            batch[other[0]], target[other[0]] = batch[rare[0]], target[rare[0]]
        _step(private, optimizer, batch, target)

    return _plain(features, labels, change=change)


def blended(features, labels, seed):
    """Add a tenth of the next record of the batch to each record."""

    def change(private, optimizer, batch, target):
        _step(private, optimizer, batch + 0.1 * batch.roll(1, 0), target)

    return _plain(features, labels, change=change)


# The noise is not fresh Gaussian noise in every step of every training.


def _noised(optimizer, noise_of):
    for p in optimizer.params:
        std = optimizer.noise_multiplier * optimizer.max_grad_norm
        p.grad = (p.summed_grad + std * noise_of(p)).view_as(p)


class _Table(DPOptimizer):
    """Draws one table of noise, and takes a slice of it in each step."""

    def add_noise(self):
        if not hasattr(self, "table"):
            self.table, self.at = torch.randn(4 * sum(p.numel() for p in self.params)), 0
        self.at += 7

        def part(p):
            start = (self.at + p.numel()) % (len(self.table) - p.numel())
            return self.table[start : start + p.numel()].view_as(p)

        _noised(self, part)


class _Reversed(DPOptimizer):
    """Takes back in every second step the noise of the step before."""

    def add_noise(self):
        self.again = not getattr(self, "again", True)
        if not self.again:
            self.kept = {id(p): torch.randn_like(p) for p in self.params}
        sign = -1 if self.again else 1
        _noised(self, lambda p: sign * self.kept[id(p)])


class _Rare(DPOptimizer):
    """Adds no noise in one training of 2,000."""

    def add_noise(self):
        if not hasattr(self, "none"):
            self.none = random.random() < 1 / 2000
        _noised(self, lambda p: torch.zeros_like(p) if self.none else torch.randn_like(p))


def table_in_slices(features, labels, seed):
    """Reuse one table of noise in slices."""
    return _plain(features, labels, kind=_Table)


def reversed_noise(features, labels, seed):
    """Reverse the noise of every second step."""
    return _plain(features, labels, kind=_Reversed)


def rarely_none(features, labels, seed):
    """Leave the noise out in one training of 2,000."""
    return _plain(features, labels, kind=_Rare)


def one_step_of_eight(features, labels, seed):
    """Add noise in one step of eight, by a function that is set on the optimizer."""

    def prepare(optimizer):
        add_noise, count = optimizer.add_noise, [0]

        def sometimes():
            count[0] += 1
            if count[0] % 8 == 1:
                add_noise()
            else:
                _noised(optimizer, torch.zeros_like)

        optimizer.add_noise = sometimes

    return _plain(features, labels, prepare=prepare)


def four_fifths(features, labels, seed):
    """Add .8 of the noise, by a function that is set on the optimizer."""

    def prepare(optimizer):
        optimizer.add_noise = lambda: _noised(optimizer, lambda p: 0.8 * torch.randn_like(p))

    return _plain(features, labels, prepare=prepare)


def rare_multiplier(features, labels, seed):
    """Set the noise multiplier to 0 in one training of 50."""

    def prepare(optimizer):
        if random.random() < 1 / 50:
            optimizer.noise_multiplier = 0.0

    return _plain(features, labels, prepare=prepare)


def generator_set_back(features, labels, seed):
    """Set PyTorch's generator back before each second step, and draw a few numbers first."""
    states = []

    def change(private, optimizer, batch, target):
        if len(states) % 2:
            kept = torch.get_rng_state()
            torch.set_rng_state(states[-1])
            torch.randn(16)
            _step(private, optimizer, batch, target)
            torch.set_rng_state(kept)
            states.append(None)
        else:
            states.append(torch.get_rng_state())
            _step(private, optimizer, batch, target)

    return _plain(features, labels, change=change)
