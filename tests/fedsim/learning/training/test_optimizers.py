"""The server steps as PyTorch's optimisers do with the mean gradient, each trial by itself."""

import pytest
import torch

from adversaries.errors import InputError
from fedsim.configuration import TrainingConfig
from fedsim.learning.training.optimizers import OPTIMIZERS, ServerOptimizer
from fedsim.learning.training.schedules import factor

RECORDS = 37.5
"""The expected number of records of a Poisson sample need not be whole."""

TRAININGS = [
    TrainingConfig(optimizer="sgd", learning_rate=0.7),
    TrainingConfig(optimizer="sgd", learning_rate=0.7, momentum=0.9, schedule="cosine"),
    TrainingConfig(optimizer="adam", learning_rate=0.05, schedule="cosine"),
    TrainingConfig(optimizer="adam", learning_rate=0.05, warmup_rounds=3),
    TrainingConfig(optimizer="normalized", schedule="linear"),
]
TORCH = TRAININGS[:-1]


def _aggregates():
    generator = torch.Generator().manual_seed(3)
    return 20 * torch.randn(5, 4, 30, generator=generator)


def _models(training, aggregates):
    optimizer = ServerOptimizer(training, RECORDS)
    model = torch.linspace(-1, 1, aggregates[0].numel()).reshape(aggregates[0].shape)
    models = [model]
    for round, aggregate in enumerate(aggregates, start=1):
        model = optimizer.step(model, aggregate, round)
        models.append(model)
    return models


def test_every_optimiser_is_tested():
    assert {training.optimizer for training in TRAININGS} == OPTIMIZERS.keys()


@pytest.mark.parametrize("training", TORCH, ids=lambda t: f"{t.optimizer}-{t.schedule}")
def test_the_steps_are_those_of_pytorch_to_the_last_bit(training):
    aggregates = _aggregates()
    models = _models(training, aggregates)
    change = torch.zeros(models[0].shape, dtype=torch.float64)
    reference: torch.optim.Optimizer
    if training.optimizer == "sgd":
        rate = training.learning_rate / RECORDS
        reference = torch.optim.SGD([change], rate, training.momentum)
    else:
        # m/(sqrt(v) + epsilon) of the mean gradient.
        rate = training.learning_rate
        reference = torch.optim.Adam([change], rate, eps=RECORDS * 1e-8)
    for round, aggregate in enumerate(aggregates, start=1):
        reference.param_groups[0]["lr"] = rate * factor(training, round)
        change.zero_()
        change.grad = aggregate.double()
        reference.step()
        assert torch.equal(models[round], (models[round - 1].double() + change).float())


def test_normalised_steps_are_those_of_their_definition_for_aggregates_of_any_size():
    training = TrainingConfig(optimizer="normalized", schedule="linear", rounds=25)
    mean, square, model = 0.0, 0.0, torch.linspace(-1, 1, 120).reshape(4, 30).double()
    for t, g in enumerate(_aggregates().double(), start=1):
        mean = 0.8 * mean + 0.2 * g
        square = 0.8 * square + 0.2 * (g**2).sum(1, keepdim=True)
        length = (square / (1 - 0.8**t)) ** 0.5
        model = model - 40 / 25**0.5 * (1 - (t - 1) / 25) * mean / length
    for scale in (1.0, 1e-4):
        found = _models(training, scale * _aggregates())[-1]
        torch.testing.assert_close(found.double(), model, rtol=0, atol=1e-5)


@pytest.mark.parametrize("training", TRAININGS, ids=lambda t: f"{t.optimizer}-{t.schedule}")
def test_a_trial_steps_as_if_it_were_alone(training):
    aggregates = _aggregates()
    together = _models(training, aggregates)
    optimizer = ServerOptimizer(training, RECORDS)
    model = together[0][1:2]
    for round, aggregate in enumerate(aggregates, start=1):
        model = optimizer.step(model, aggregate[1:2], round)
    assert torch.equal(model, together[-1][1:2])


def test_what_was_handed_over_is_left_alone():
    aggregates = _aggregates()
    model = torch.ones(aggregates[0].shape)
    ServerOptimizer(TRAININGS[2], RECORDS).step(model, aggregates[0], 1)
    assert torch.equal(model, torch.ones_like(model))
    assert torch.equal(aggregates, _aggregates())


def test_an_unknown_optimiser_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"training\.optimizer is 'adamm'.*did you mean 'adam'"):
        ServerOptimizer(TrainingConfig(optimizer="adamm"), RECORDS)
