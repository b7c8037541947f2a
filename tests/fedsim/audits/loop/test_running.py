"""What a loop may be: how it draws its batches, and what it returns."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from fedsim.audits.child_process.channel import AppFailedError
from fedsim.audits.loop.contract import Data, loaded, pairs
from fedsim.audits.loop.running import Loop, LoopTrials
from fedsim.audits.steps.observation import Observation
from fedsim.audits.steps.rules import broken
from fedsim.audits.steps.theory import epsilon
from fedsim.learning.data import load
from fedsim.privacy.mechanism import Neighbouring

pytestmark = pytest.mark.filterwarnings("ignore")

OWN = Path(__file__).parents[3] / "apps" / "loops" / "own_loops.py"

DATA = Data(
    np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32),
    (np.arange(40) % 2).astype(np.int64),
)


def loop(watch, call):
    return Loop(call, watch)


def private(loader, net=None):
    net = net or nn.Linear(3, 2)
    return PrivacyEngine(accountant="rdp").make_private(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )


def step(net, optimizer, batch, target):
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(batch), target).backward()
    optimizer.step()


@pytest.mark.parametrize(("workers", "physical"), [(0, 0), (0, 3), (2, 0), (2, 3)])
def test_each_step_is_seen_with_the_batch_that_was_drawn_for_it(workers, physical, watch):
    """Workers load batches ahead; a memory manager cuts them into parts."""
    sizes = []

    def train(features, labels, seed):
        sizes.clear()
        data = TensorDataset(features, labels)
        net, optimizer, loader = private(DataLoader(data, batch_size=10, num_workers=workers))
        account, whole = optimizer.step_hook, 0

        def count(optimizer):
            account(optimizer)
            sizes.append(whole)

        optimizer.attach_step_hook(count)

        def epoch(batches):
            nonlocal whole
            for batch, target in batches:
                whole += len(batch)
                before = len(sizes)
                step(net, optimizer, batch, target)
                whole = 0 if len(sizes) > before else whole

        for _ in range(2):
            if physical:
                with BatchMemoryManager(
                    data_loader=loader, max_physical_batch_size=physical, optimizer=optimizer
                ) as parts:
                    epoch(parts)
            else:
                epoch(loader)
        return net

    seen = loop(watch, train).observed(DATA, 3)
    assert len(sizes) == 8
    assert [each.batch for each in seen.steps] == sizes
    assert sum(len(each.members or ()) for each in seen.steps) == sum(sizes)
    assert ({each.sampling for each in seen.steps}, seen.explained) == ({"poisson"}, True)
    assert seen.steps[0].sample_rate == 0.25
    assert all(each.clipped for each in seen.steps)


def test_batches_without_places_are_said_to_be_unseen(watch):
    class Stream(IterableDataset[tuple[Tensor, Tensor]]):
        def __init__(self, *rows):
            self.rows = rows

        def __iter__(self):
            return zip(*self.rows, strict=True)

    def train(features, labels, seed):
        net, optimizer, _ = private(DataLoader(TensorDataset(features, labels), batch_size=10))
        for batch, target in DataLoader(Stream(features, labels), batch_size=10):
            step(net, optimizer, batch, target)
        return net

    seen = loop(watch, train).observed(DATA, 3)
    assert [each.batch for each in seen.steps] == [None] * 4
    assert ({each.sampling for each in seen.steps}, seen.size) == ({""}, 0)
    observed = Observation((seen,), (seen,), (seen,), 40, Neighbouring.ADD_REMOVE)
    assert not broken(observed, "sampler")


def test_a_batch_of_validation_is_no_step_s(watch):
    def train(features, labels, seed):
        net, optimizer, loader = private(DataLoader(TensorDataset(features, labels), batch_size=10))
        for batch, target in loader:
            step(net, optimizer, batch, target)
            next(iter(DataLoader(TensorDataset(features), batch_size=40)))
        return net

    seen = loop(watch, train).observed(DATA, 3)
    assert all(each.batch is not None and each.batch < 40 for each in seen.steps)
    drawn = Counter(member for each in seen.steps for member in each.members or ())
    assert ({each.sampling for each in seen.steps}, max(drawn.values()) <= 4) == ({"poisson"}, True)


def summed(features, labels, seed):
    noise = torch.randn(3, generator=torch.Generator().manual_seed(seed))
    return features.sum(0) + noise


def test_a_loop_returns_a_vector_or_rows(watch):
    assert loop(watch, summed).released(DATA, 5).shape == (1, 3)
    assert loop(watch, lambda *_: torch.zeros(4, 3)).released(DATA, 5).shape == (4, 3)
    with pytest.raises(AppFailedError, match="steps"):
        loop(watch, lambda *_: torch.zeros(2, 4, 3)).released(DATA, 5)


def trained(carry):
    """Return a loop that trains with Opacus, and returns what is made of its model and the data."""

    def train(features, labels, seed):
        net = nn.Sequential(nn.Linear(3, 4), nn.GroupNorm(2, 4), nn.Dropout(0.1), nn.Linear(4, 2))
        data = TensorDataset(features, labels)
        net, optimizer, loader = private(DataLoader(data, batch_size=10), net)
        for batch, target in loader:
            step(net, optimizer, batch, target)
        return carry(net, features, labels)

    return train


def flat(net):
    return torch.cat([each.detach().ravel() for each in net.parameters()])


def with_buffer(tensor):
    def carry(net, features, labels):
        net.register_buffer("more", tensor(features, labels))
        return net

    return carry


def with_all(net, features, labels):
    return net.state_dict() | {"more": (255 * features).to(torch.uint8)}


def arrays(net, *_):
    return {name: each.numpy() for name, each in net._module.state_dict().items()}


RETURNED = {
    "the wrapped model": (lambda net, *_: net, True),
    "the model": (lambda net, *_: net._module, True),
    "its state": (lambda net, *_: net.state_dict(), True),
    "its state, as arrays": (arrays, True),
    "a vector": (lambda net, *_: flat(net), True),
    "nothing": (lambda *_: None, True),
    "a counter beside it": (with_buffer(lambda *_: torch.tensor(4)), True),
    "something more of the data": (lambda net, x, _: torch.cat([flat(net), x.mean(0)]), False),
    "another model": (lambda net, *_: flat(net) * 1.5, False),
    "a part of it": (lambda net, *_: flat(net)[:4], False),
    "a buffer of another's record": (with_buffer(lambda features, _: features[0]), False),
}
"""What a loop returns, and whether theory knows it."""

BESIDE = {
    "class counts": with_buffer(lambda _, labels: torch.bincount(labels)),
    "sums of pixels": with_buffer(lambda features, _: (1000 * features).sum(0).long()),
    "another's record": with_buffer(lambda features, _: (1000 * features[0]).long()),
    "a state dict with all records": with_all,
}
"""Private data in integer tensors beside a model's weights."""


@pytest.mark.parametrize("name", [*RETURNED, *BESIDE])
def test_theory_knows_what_opacus_made_and_nothing_else(name, watch):
    returned, known = RETURNED.get(name) or (BESIDE[name], False)
    one = loop(watch, trained(returned))
    other = DATA.with_record(0, DATA.features[0] + 5, 1 - DATA.labels[0])
    present = tuple(one.observed(DATA, seed) for seed in (3, 4))
    found = Observation(
        present, twin=(one.observed(other, 3),), records=40, neighbouring=Neighbouring.REPLACE
    )
    assert found.explained is known
    assert (epsilon(found, 1e-5) is not None) == known
    assert [each.rpartition(".")[2].split()[-1] for each in found.beside] == ["more"] * (
        name in BESIDE
    )
    assert len(found.steps) == 4


def test_pilots_learn_the_targets_gradient_and_not_a_stand_ins(watch):
    """By hand: at a model of zeros the mean error of all labels of one record is 0."""
    bundled = load("digits").train
    data = Data(np.float32(bundled.features[:20]), np.asarray(bundled.labels[:20]))
    hand = Loop(loaded(f"{OWN}:correct"), watch)
    for pair in pairs(data, "crafted", Neighbouring.ADD_REMOVE, 0):
        trials = LoopTrials(hand, [pair])
        assert trials.pilot(0, range(10)) == pytest.approx(4**0.5 / 8, rel=0.2)
        error = np.full(10, 0.1) - np.eye(10)[int(pair.present.labels[pair.place])]
        gradient = np.outer(error, pair.present.features[pair.place].ravel()).ravel()
        unit = trials.directions[0].unit
        assert unit @ gradient / np.linalg.norm(gradient) > 0.97
