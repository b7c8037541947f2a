"""A model is differentiated layer by layer only where that gives what autograd gives."""

import torch
from torch import nn

from fedsim.learning.training.layerwise import fallbacks


class OverwritesItsInput(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        hidden = self.first(x).detach()
        output = self.second(hidden)
        return output + hidden.relu_()[:, :3]


class TurnsAround(nn.Module):
    """Reverses the order of the records between two layers, which keeps all shapes."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)).flip(0))


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x):
        return self.first(x)


def _reason(model):
    return fallbacks(model, torch.zeros(5))[""]


def test_a_model_of_known_layers_needs_no_fallback():
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(inplace=True), nn.Linear(4, 3))
    assert fallbacks(model, torch.zeros(5)) == {}


def test_a_layer_input_that_is_overwritten_later_is_noticed():
    assert "overwritten" in _reason(OverwritesItsInput())


def test_records_that_change_places_are_noticed():
    assert "differ from autograd" in _reason(TurnsAround())


def test_a_layer_that_takes_no_part_is_noticed():
    assert "'second' takes no part" in _reason(Unused())


def test_a_layer_that_returns_two_tensors_makes_the_whole_model_fall_back():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))

        def forward(self, x):
            return x * self.scale, x

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.two, self.last = nn.Linear(5, 4), Two(), nn.Linear(4, 3)

        def forward(self, x):
            scaled, plain = self.two(self.first(x))
            return self.last(scaled + plain)

    assert "does not return one tensor" in _reason(Model())


def test_a_layer_that_owns_the_layers_inside_it_goes_through_torch_func_as_a_whole():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift, self.inner = nn.Parameter(torch.zeros(4)), nn.Linear(4, 4)

        def forward(self, x):
            return self.inner(x + self.shift)

    model = nn.Sequential(nn.Linear(5, 4), Outer(), nn.Linear(4, 3))
    assert fallbacks(model, torch.zeros(5)) == {"1": "Outer has no rule"}
