"""Networks have the published sizes; a model of T trials is one array."""

import pytest
import torch
from torch import nn

from fedsim.errors import InputError
from fedsim.models import (
    build,
    initial_parameters,
    parameter_shapes,
    refuse_batch_statistics,
    unflatten,
)


def test_the_paper_network_for_mnist_has_6554_parameters() -> None:
    model = build("mnist-cnn", (1, 28, 28), 10, 0)
    assert sum(p.numel() for p in model.parameters()) == 6554
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_unflatten_gives_back_the_parameters_in_order() -> None:
    model = build("mlp", (1, 8, 8), 10, 5)
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    named = unflatten(torch.stack([flat, flat + 1]), parameter_shapes(model))
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(named[name], torch.stack([parameter, parameter + 1]))


def test_initial_models_differ_between_trials_and_not_with_the_cohort() -> None:
    def network() -> nn.Module:
        return build("linear", (3,), 2, 0)

    together = initial_parameters(network, 5, range(6))
    apart = torch.cat(
        [initial_parameters(network, 5, range(2)), initial_parameters(network, 5, range(2, 6))]
    )
    assert torch.equal(together, apart)
    assert len({tuple(row.tolist()) for row in together}) == 6


def test_initial_models_leave_the_global_generator_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    initial_parameters(lambda: nn.Linear(2, 2), 5, range(3))
    assert torch.equal(torch.rand(3), expected)


def test_batch_statistics_are_refused_by_layer_name() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4))
    with pytest.raises(InputError, match=r"layer '1' is BatchNorm2d.*nn.GroupNorm"):
        refuse_batch_statistics(model)


@pytest.mark.parametrize(
    ("name", "shape", "complaint"),
    [("mpl", (3,), "did you mean 'mlp'"), ("mnist-cnn", (30,), "needs images")],
)
def test_a_model_that_does_not_exist_or_fit_is_refused(
    name: str, shape: tuple[int, ...], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        build(name, shape, 2, 8)
