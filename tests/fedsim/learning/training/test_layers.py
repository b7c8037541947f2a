"""Every layer's rule gives the norms and sums that autograd gives one example at a time."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call

from fedsim.learning.training import gradients
from fedsim.learning.training.gradients import Gradient
from fedsim.learning.training.layers import by_torch_func, refusal, rule_of
from fedsim.learning.training.models import ChannelAffine

TRIALS, RECORDS = 3, 4

LAYERS = {
    "linear": (lambda: nn.Linear(5, 4), (5,)),
    "linear without bias": (lambda: nn.Linear(5, 4, bias=False), (5,)),
    "linear on a sequence": (lambda: nn.Linear(5, 4), (6, 5)),
    "linear on a grid": (lambda: nn.Linear(5, 4), (2, 3, 5)),
    "convolution": (lambda: nn.Conv2d(2, 3, 3), (2, 6, 5)),
    "convolution without bias": (lambda: nn.Conv2d(2, 3, 3, bias=False), (2, 6, 5)),
    "convolution of many channels": (lambda: nn.Conv2d(9, 3, 3, padding=1), (9, 4, 5)),
    "padding 'same'": (lambda: nn.Conv2d(2, 3, (2, 3), padding="same"), (2, 6, 5)),
    "padding 'valid'": (lambda: nn.Conv2d(2, 3, 3, padding="valid"), (2, 6, 5)),
    "reflecting padding": (
        lambda: nn.Conv2d(2, 3, 3, padding=(2, 1), padding_mode="reflect"),
        (2, 6, 5),
    ),
    "circular padding": (lambda: nn.Conv1d(2, 3, 3, padding=2, padding_mode="circular"), (2, 6)),
    "grouped convolution": (lambda: nn.Conv2d(4, 6, 3, groups=2, padding=1), (4, 5, 4)),
    "convolution over space": (
        lambda: nn.Conv3d(2, 4, 2, padding=(1, 0, 1), groups=2),
        (2, 3, 4, 3),
    ),
    "embedding": (lambda: nn.Embedding(7, 4), (6,)),
    "embedding with padding": (lambda: nn.Embedding(7, 4, padding_idx=0), (6,)),
    "embedding of one word": (lambda: nn.Embedding(7, 4), ()),
    "embedding of a grid": (lambda: nn.Embedding(7, 4), (2, 3)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (4, 3, 5)),
    "group norm without positions": (lambda: nn.GroupNorm(2, 4), (4,)),
    "layer norm": (lambda: nn.LayerNorm(5), (3, 5)),
    "layer norm over two axes": (lambda: nn.LayerNorm((3, 5)), (2, 3, 5)),
    "layer norm without positions": (lambda: nn.LayerNorm(5), (5,)),
    "layer norm without bias": (lambda: nn.LayerNorm(5, bias=False), (3, 5)),
    "channel affine": (lambda: ChannelAffine(3), (3, 4, 5)),
    "channel affine over time": (lambda: ChannelAffine(3), (3, 4)),
    "no rule: transposed convolution": (lambda: nn.ConvTranspose1d(3, 2, 3), (3, 4)),
    "no rule: root mean square": (lambda: nn.RMSNorm(5), (3, 5)),
}


def _example(layer, values, x, error):
    """The gradients of <layer(x), error> for one example, by autograd."""
    values = {name: value.detach().requires_grad_() for name, value in values.items()}
    output = functional_call(layer, values, (x[None],))
    return list(torch.autograd.grad((output[0] * error).sum(), list(values.values())))


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("cost", [0, gradients.FORMING_COST, 10**9])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("case", LAYERS)
def test_a_rule_agrees_with_autograd(case, shared, cost, monkeypatch):
    # Formed always, where it costs less, or never.
    monkeypatch.setattr(gradients, "FORMING_COST", cost)
    build, shape = LAYERS[case]
    torch.manual_seed(0)
    layer = build()
    rule = by_torch_func if case.startswith("no rule") else rule_of(layer)
    assert (refusal(layer) is None) == (rule is not by_torch_func)
    values = {name: torch.randn(TRIALS, *p.shape) for name, p in layer.named_parameters()}
    size = (1 if shared else TRIALS, RECORDS, *shape)
    if isinstance(layer, nn.Embedding):
        x = torch.randint(0, 7, size)
    else:
        # Inputs that need a gradient are those behind another parametrised layer.
        x = torch.randn(size, requires_grad=not shared)
    output, backward = rule(layer, values, x)
    errors, weights = torch.randn(output.shape), torch.rand(TRIALS, RECORDS)
    found = backward(errors.clone())  # which may be overwritten
    sums = {name: torch.zeros_like(value) for name, value in values.items()}
    norms = {name: torch.zeros(TRIALS, RECORDS, dtype=torch.float64) for name in values}
    each = {name: torch.zeros(TRIALS, RECORDS, *value.shape[1:]) for name, value in values.items()}
    for t in range(TRIALS):
        of_trial = {name: value[t] for name, value in values.items()}
        for n in range(RECORDS):
            own = x.detach()[0 if shared else t, n]
            expected = functional_call(layer, of_trial, (own[None],))[0]
            torch.testing.assert_close(output[t, n].detach(), expected.detach())
            example = _example(layer, of_trial, own, errors[t, n])
            for name, gradient in zip(values, example, strict=True):
                each[name][t, n] = gradient
                sums[name][t] += weights[t, n] * gradient
                norms[name][t, n] = gradient.double().norm()
    for name in values:
        gradient = found[name]
        torch.testing.assert_close(gradient.norms(), norms[name], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(
            gradient.weighted_sum(weights).flatten(1),
            sums[name].flatten(1),
            rtol=1e-4,
            atol=1e-5,
        )
        torch.testing.assert_close(gradient.formed(), each[name].flatten(2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("option", [{"max_norm": 1.0}, {"scale_grad_by_freq": True}])
def test_an_embedding_that_changes_its_weights_or_gradients_has_no_rule(option):
    assert "has no rule" in str(refusal(nn.Embedding(7, 4, **option)))


@st.composite
def _convolutions(draw):
    """Any convolution over one to three axes, and a record that is large enough for it."""
    axes = draw(st.integers(1, 3))
    groups = draw(st.integers(1, 3))
    channels = groups * draw(st.integers(1, 9 if axes == 1 else 2))
    kernel, stride, dilation, padding, spare = (
        [draw(st.integers(low, high)) for _ in range(axes)]
        for low, high in ((1, 3), (1, 3), (1, 2), (0, 2), (0, 2))
    )
    layer = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[axes - 1](
        channels,
        groups * draw(st.integers(1, 3)),
        tuple(kernel),
        tuple(stride),
        tuple(padding),
        tuple(dilation),
        groups,
        bias=draw(st.booleans()),
    )
    sizes = [(k - 1) * d + 1 + more for k, d, more in zip(kernel, dilation, spare, strict=True)]
    return layer, (channels, *sizes)


@settings(max_examples=40)
@given(_convolutions(), st.booleans(), st.integers(1, 3), st.integers(1, 3))
def test_a_convolution_of_any_shape_agrees_with_torch_func(case, shared, trials, records):
    layer, shape = case
    torch.manual_seed(0)
    values = {name: torch.randn(trials, *p.shape) for name, p in layer.named_parameters()}
    x = torch.randn(1 if shared else trials, records, *shape, requires_grad=not shared)
    output, backward = rule_of(layer)(layer, values, x)
    expected, by_func = by_torch_func(layer, values, x)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-4)
    errors, weights = torch.randn(output.shape), torch.rand(trials, records)
    found = backward(errors.clone())
    for name, gradient in by_func(errors).items():
        for quantity in (Gradient.norms, Gradient.formed):
            torch.testing.assert_close(
                getattr(found[name], quantity.__name__)(),
                getattr(gradient, quantity.__name__)(),
                rtol=1e-4,
                atol=1e-4,
            )
        torch.testing.assert_close(
            found[name].weighted_sum(weights).flatten(1),
            gradient.weighted_sum(weights).flatten(1),
            rtol=1e-4,
            atol=1e-4,
        )


def test_a_layer_with_parameters_that_its_rule_does_not_know_has_no_rule():
    layer = nn.Linear(5, 4)
    layer.register_parameter("gain", nn.Parameter(torch.ones(4)))
    assert refusal(layer) == "Linear with the parameter gain has no rule"
