"""Clipped sums on the trial axis equal a loop over trials and records, and Opacus."""

import copy

import opacus
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from fedsim import clipping
from fedsim.clipping import Clipper, clipping_factors
from fedsim.models import build, initial_parameters

TRIALS, RECORDS = 4, 6


def _game(name: str, shape: tuple[int, ...]) -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    model = build(name, shape, 3, 7)
    parameters = initial_parameters(lambda: build(name, shape, 3, 7), 0, range(TRIALS))
    features = torch.rand(RECORDS, *shape, generator=generator)
    return model, parameters, features, torch.arange(RECORDS) % 3


def _gradient(model: nn.Module, flat: Tensor, feature: Tensor, label: Tensor) -> Tensor:
    """One trial, one record, plain autograd in float64."""
    model = copy.deepcopy(model).double()
    nn.utils.vector_to_parameters(flat.double(), model.parameters())
    loss = functional.cross_entropy(model(feature[None].double()), label[None])
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


GAMES = [("linear", (5,)), ("mlp", (1, 4, 4)), ("mnist-cnn", (1, 12, 12))]


@pytest.mark.parametrize(("name", "shape"), GAMES)
@pytest.mark.parametrize("block", [1, 2**22])
def test_the_sum_equals_a_loop_over_trials_and_records(
    name: str, shape: tuple[int, ...], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(clipping.BLOCK_GRADIENTS, "cpu", block)
    model, parameters, features, labels = _game(name, shape)
    weights = torch.tensor([[1.0, 0, 1, 1, 1, 0]] * 2 + [[1.0] * 6] * 2)
    bound = 0.7
    expected = torch.zeros(parameters.shape, dtype=torch.float64)
    for trial in range(TRIALS):
        for record in range(RECORDS):
            g = _gradient(model, parameters[trial], features[record], labels[record])
            expected[trial] += weights[trial, record] * g * min(1.0, bound / float(g.norm()))
    actual = Clipper(model, bound).clipped_sum(parameters, features, labels, weights)
    # Gradients are float32 (6e-8 relative); a network's depth costs a factor of ten.
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize(("name", "shape"), GAMES[:2])
def test_the_sum_equals_opacus(name: str, shape: tuple[int, ...]) -> None:
    model, parameters, features, labels = _game(name, shape)
    bound = 0.7
    actual = Clipper(model, bound).clipped_sum(parameters, features, labels)
    for trial in range(TRIALS):
        single = copy.deepcopy(model)
        nn.utils.vector_to_parameters(parameters[trial], single.parameters())
        optimizer = opacus.optimizers.DPOptimizer(
            torch.optim.SGD(single.parameters(), lr=1.0),
            noise_multiplier=0.0,
            max_grad_norm=bound,
            expected_batch_size=1,
        )
        wrapped = opacus.GradSampleModule(single)
        functional.cross_entropy(wrapped(features), labels, reduction="mean").backward()
        optimizer.clip_and_accumulate()
        opacus_sum = torch.cat([p.summed_grad.flatten() for p in wrapped.parameters()])
        torch.testing.assert_close(actual[trial].float(), opacus_sum, rtol=1e-4, atol=1e-6)


def test_single_records_add_up_to_the_sum() -> None:
    model, parameters, features, labels = _game("mlp", (1, 4, 4))
    clipper = Clipper(model, 0.7)
    each = clipper.clipped_gradients(parameters, features, labels)
    torch.testing.assert_close(each.sum(1), clipper.clipped_sum(parameters, features, labels))


def test_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    # Blocks of one trial, many of them, so that the threads really run at the same time.
    monkeypatch.setitem(clipping.BLOCK_GRADIENTS, "cpu", 1000)
    model, parameters, features, labels = _game("mlp", (1, 4, 4))
    parameters = parameters.repeat(25, 1)
    expected = Clipper(model, 0.7).clipped_sum(parameters, features, labels)
    assert torch.equal(
        Clipper(model, 0.7, threads=4).clipped_sum(parameters, features, labels), expected
    )


def test_the_size_of_the_cohort_does_not_change_a_trial() -> None:
    model, parameters, features, labels = _game("mlp", (1, 4, 4))
    expected = Clipper(model, 0.7).clipped_sum(parameters, features, labels)
    alone = Clipper(model, 0.7).clipped_sum(parameters[2:3], features, labels)
    torch.testing.assert_close(alone[0], expected[2], rtol=1e-6, atol=1e-7)


@settings(max_examples=30, deadline=None)
@given(st.floats(1e-6, 1e6), st.floats(1e-3, 10))
def test_no_clipped_gradient_is_longer_than_the_clipping_norm(scale: float, bound: float) -> None:
    model, parameters, features, labels = _game("mlp", (1, 4, 4))
    gradients = Clipper(model, bound).clipped_gradients(parameters * scale, features, labels)
    assert float(gradients.norm(dim=-1).max()) <= bound * (1 + 1e-6)


def test_the_norm_runs_over_all_parameters_together() -> None:
    # Gradients (3,4), (0,1), (6,8) clip at C = 3 to (1.8,2.4), (0,1), (1.8,2.4).
    gradients = [torch.tensor([[[3.0], [0.0], [6.0]]]), torch.tensor([[[4.0], [1.0], [8.0]]])]
    factors = clipping_factors(gradients, 3.0)
    torch.testing.assert_close(factors, torch.tensor([[0.6, 1.0, 0.3]]))


def test_a_zero_gradient_stays_zero() -> None:
    assert clipping_factors([torch.zeros(1, 1, 2)], 3.0).item() == 1.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_an_error_and_not_clipped_away(bad: float) -> None:
    with pytest.raises(FloatingPointError, match="diverged"):
        clipping_factors([torch.tensor([[[bad]]])], 3.0)
