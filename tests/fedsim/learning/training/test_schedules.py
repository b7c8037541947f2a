"""The factor of a round is that of PyTorch's scheduler, and of nothing but the round."""

import pytest
import torch
from torch.optim import lr_scheduler

from adversaries.errors import InputError
from fedsim.configuration import TrainingConfig
from fedsim.learning.training import schedules

ROUNDS = 12


def _reference(make):
    """Return the learning rates that a scheduler of PyTorch gives to the rounds, from 1.0."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = make(optimizer)
    rates = []
    for _ in range(ROUNDS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


REFERENCES = {
    "constant": lambda o: lr_scheduler.ConstantLR(o, 1.0),
    "linear": lambda o: lr_scheduler.LinearLR(o, 1.0, 0.0, ROUNDS),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, ROUNDS),
}


def _factors(**changes):
    training = TrainingConfig(rounds=ROUNDS, **changes)
    return [schedules.factor(training, round) for round in range(1, ROUNDS + 1)]


def test_every_schedule_has_a_reference():
    assert REFERENCES.keys() == schedules.SCHEDULES.keys()


@pytest.mark.parametrize("name", REFERENCES)
def test_a_schedule_is_that_of_pytorch(name):
    assert _factors(schedule=name) == pytest.approx(_reference(REFERENCES[name]), abs=1e-12)


def test_no_round_is_without_a_step():
    for name in schedules.SCHEDULES:
        assert all(0 < factor <= 1 for factor in _factors(schedule=name, warmup_rounds=3))


@pytest.mark.parametrize("name", REFERENCES)
def test_the_warm_up_multiplies_any_schedule(name):
    warm = _reference(lambda o: lr_scheduler.LinearLR(o, 1 / 4, 1.0, 3))
    expected = [w * f for w, f in zip(warm, _factors(schedule=name), strict=True)]
    assert _factors(schedule=name, warmup_rounds=4) == pytest.approx(expected, abs=1e-12)


def test_an_unknown_schedule_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"training\.schedule is 'cosin'.*did you mean 'cosine'"):
        _factors(schedule="cosin")
