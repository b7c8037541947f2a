"""First values that are drawn as another framework draws them."""

import math

import pytest
import torch
from torch import nn

from adversaries.errors import InputError
from fedsim.configuration import from_run_config, to_run_config
from fedsim.configuration.training import DRAWN
from fedsim.learning.training.models import INITIALISERS, build


def test_glorots_weights_are_uniform_to_their_limit_and_biases_are_zero():
    torch.manual_seed(3)
    model = build("mnist-cnn", (1, 28, 28), 10, 1, weights="glorot")
    # Of a 3x3 convolution from 1 to 16 channels: 9 inputs and 144 outputs (Keras' convention).
    for layer, limit in ((model[0], math.sqrt(6 / 153)), (model[9], math.sqrt(6 / 410))):
        assert isinstance(layer, nn.Conv2d | nn.Linear)
        assert layer.bias is not None
        assert torch.equal(layer.bias, torch.zeros_like(layer.bias))
        largest = float(layer.weight.abs().max().detach())
        assert 0.95 * limit < largest <= limit
        # Of a uniform law in ±limit; 144 values at least, whose variance is known to 8 %.
        assert float(layer.weight.var().detach()) == pytest.approx(limit**2 / 3, rel=0.3)
    # What Keras starts from ones, PyTorch does too.
    assert torch.equal(model[2].weight, torch.ones(16))


def test_the_configuration_names_every_initialiser():
    assert set(DRAWN) == {"", *INITIALISERS}


def test_an_initialiser_is_no_file():
    config = from_run_config({"model.weights": "glorot"})
    assert config.model.weights_path == ""
    # Where a client's files are is nothing to it.
    assert to_run_config(config.reading_data_from(""))["model.weights"] == "glorot"
    with pytest.raises(InputError, match=r"model\.weights"):
        from_run_config({"model.weights": "glorot", "model.weights-sha256": 64 * "0"})
