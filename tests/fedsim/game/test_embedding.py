"""An embedding is what the last linear layer of the model receives."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from adversaries.errors import InputError
from fedsim.game import challenge, federation
from fedsim.game.challenge import embed, initial_parameters
from fedsim.learning.training.models import initial_parameters as theta_0


def test_the_embedding_of_an_mlp_is_its_hidden_layer(small):
    config = small({"model.name": "mlp", "model.hidden": 7})
    known = federation.load(config)
    theta = initial_parameters(config, known)
    features = known.split.members_records.features
    weights, bias = theta[: 7 * 64].reshape(7, 64).numpy(), theta[7 * 64 : 7 * 65].numpy()
    expected = np.maximum(features.reshape(-1, 64) @ weights.T + bias, 0)
    found = embed(known, features, theta)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_parameters_are_those_that_the_first_trial_begins_with(small):
    config = small()
    known = federation.load(config)
    build = lambda: federation.build_model(config, known.split.dataset)  # noqa: E731
    every = theta_0(build, config.run.seed, range(3))
    assert torch.equal(initial_parameters(config, known), every[0])


def test_the_embedding_does_not_depend_on_the_blocks(small, monkeypatch):
    config = small({"model.name": "mlp"})
    known = federation.load(config)
    theta, features = initial_parameters(config, known), known.split.pool_records.features
    whole = embed(known, features, theta)
    monkeypatch.setattr(challenge, "BLOCK_SCALARS", 64 * 7)
    np.testing.assert_allclose(embed(known, features, theta), whole, atol=1e-6)


def test_the_federations_own_model_stays_as_it_is(small):
    config = small({"model.name": "mlp"})
    known = federation.load(config)
    before = [p.clone() for p in known.model.parameters()]
    embed(known, known.split.pool_records.features, initial_parameters(config, known) + 1)
    assert all(map(torch.equal, before, known.model.parameters()))
    assert not any(layer._forward_pre_hooks for layer in known.model.modules())


class Twice(nn.Module):
    """A layer that is its own successor."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        """Map [N, 1, 8, 8] to [N, 64]."""
        return self.layer(self.layer(x.flatten(1)))


@pytest.mark.parametrize(
    ("model", "complaint"),
    [
        (nn.Sequential(nn.Conv2d(1, 10, 8), nn.Flatten()), "the model has no linear layer"),
        (Twice(), "last linear layer 2 times"),
    ],
)
def test_a_model_without_one_last_linear_layer_is_refused(model, complaint, small):
    known = replace(federation.load(small()), model=model)
    theta = torch.cat([p.detach().flatten() for p in model.parameters()])
    with pytest.raises(InputError, match=complaint):
        embed(known, known.split.pool_records.features, theta)
