"""What a model carries beside its weights: private data there keep a claim from being supported."""

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fedsim.audits.loop.running import Loop
from fedsim.audits.loop.worlds import Data, pairs
from fedsim.audits.steps.observation import Observation
from fedsim.audits.steps.theory import epsilon
from fedsim.privacy.mechanism import Neighbouring

pytestmark = pytest.mark.filterwarnings("ignore")


DATA = Data(
    np.random.default_rng(0).random((39, 3)).astype(np.float32),
    (np.arange(39) % 2).astype(np.int64),
)


def carrying(carry):
    """Return a right loop that returns its model, or what is made of it and the data."""

    def train(features, labels, seed):
        net = nn.Sequential(nn.Linear(3, 4), nn.GroupNorm(2, 4), nn.Dropout(0.1), nn.Linear(4, 2))
        net, optimizer, loader = PrivacyEngine(accountant="rdp").make_private(
            module=net,
            optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
            data_loader=DataLoader(TensorDataset(features, labels), batch_size=10),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )
        for batch, target in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(batch), target).backward()
            optimizer.step()
        returned = carry(net, features, labels)
        return net if returned is None else returned

    return train


def observed(carry, watch):
    loop = Loop(carrying(carry), watch)
    (pair,) = pairs(DATA, "real", Neighbouring.ADD_REMOVE, 0)
    seen = [loop.observed(each, 3) for each in (pair.absent, pair.twin(), pair.stranger())]
    return Observation(
        present=tuple(loop.observed(pair.present, seed) for seed in (3, 4)),
        absent=(seen[0],),
        twin=(seen[1],),
        stranger=(seen[2],),
        records=39,
        neighbouring=Neighbouring.ADD_REMOVE,
    )


def with_buffer(tensor):
    def carry(net, features, labels):
        net.register_buffer("more", tensor(features, labels))

    return carry


def state_with_records(net, features, labels):
    return net.state_dict() | {"more": (255 * features).to(torch.uint8)}


PRIVATE = {
    "class counts": with_buffer(lambda _, labels: torch.bincount(labels)),
    "sums of pixels": with_buffer(lambda features, _: (1000 * features).sum(0).long()),
    "another's record": with_buffer(lambda features, _: (1000 * features[0]).long()),
    "a state dict with all records": state_with_records,
}


@pytest.mark.parametrize("name", PRIVATE)
def test_private_data_beside_the_weights_are_named_and_theory_does_not_answer(name, watch):
    seen = observed(PRIVATE[name], watch)
    assert [each.rpartition(".")[2].split()[-1] for each in seen.beside] == ["more"]
    assert not seen.explained
    assert epsilon(seen, 1e-5) is None


def test_floating_numbers_of_another_s_record_are_no_part_of_the_steps(watch):
    seen = observed(with_buffer(lambda features, _: features[0]), watch)
    assert (seen.beside, seen.explained) == ((), False)


RIGHT = {
    "a model of Opacus": lambda net, _, __: None,
    "a model": lambda net, _, __: net._module,
    "a state dict": lambda net, _, __: net.state_dict(),
    "a counter": with_buffer(lambda _, __: torch.tensor(4)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_the_same_in_all_honest_runs_tells_of_no_record(name, watch):
    seen = observed(RIGHT[name], watch)
    assert (seen.beside, seen.explained) == ((), True)
    assert epsilon(seen, 1e-5) is not None
