"""Every layer's rule gives the norms and sums that autograd gives one example at a time."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedsim.layers import RULES
from fedsim.models import ChannelAffine

TRIALS, RECORDS = 3, 4

LAYERS = {
    "linear": (lambda: nn.Linear(5, 4), (5,)),
    "linear without bias": (lambda: nn.Linear(5, 4, bias=False), (5,)),
    "linear on a sequence": (lambda: nn.Linear(5, 4), (6, 5)),
    "linear on a grid": (lambda: nn.Linear(5, 4), (2, 3, 5)),
    "convolution": (lambda: nn.Conv2d(2, 3, 3), (2, 6, 5)),
    "convolution without bias": (lambda: nn.Conv2d(2, 3, 3, bias=False), (2, 6, 5)),
    "1x1 convolution": (lambda: nn.Conv2d(2, 3, 1), (2, 6, 5)),
    "stride": (lambda: nn.Conv2d(2, 3, (3, 2), stride=(2, 3)), (2, 8, 9)),
    "padding": (lambda: nn.Conv2d(2, 3, 3, padding=(0, 2)), (2, 6, 5)),
    "dilation": (lambda: nn.Conv2d(2, 3, (2, 3), dilation=(3, 2)), (2, 8, 9)),
    "all of them": (lambda: nn.Conv2d(2, 3, 3, stride=2, padding=1, dilation=2), (2, 9, 8)),
    "channel affine": (lambda: ChannelAffine(3), (3, 4, 5)),
}


def _example(layer: nn.Module, values: dict[str, Tensor], x: Tensor, error: Tensor) -> list[Tensor]:
    """The gradients of <layer(x), error> for one example, by autograd."""
    values = {name: value.detach().requires_grad_() for name, value in values.items()}
    output = functional_call(layer, values, (x[None],))
    return list(torch.autograd.grad((output[0] * error).sum(), list(values.values())))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("case", LAYERS)
def test_a_rule_agrees_with_autograd(case: str, shared: bool) -> None:
    build, shape = LAYERS[case]
    torch.manual_seed(0)
    layer = build()
    rule = RULES[type(layer)]
    assert rule.refusal(layer) is None
    values = {name: torch.randn(TRIALS, *p.shape) for name, p in layer.named_parameters()}
    # Inputs that need a gradient are those behind another parametrised layer.
    x = torch.randn(1 if shared else TRIALS, RECORDS, *shape, requires_grad=not shared)
    output = rule.forward(layer, values, x)
    errors, weights = torch.randn(output.shape), torch.rand(TRIALS, RECORDS)
    gradients = rule.gradients(layer, x.detach(), errors)
    sums = {name: torch.zeros_like(value) for name, value in values.items()}
    norms = {name: torch.zeros(TRIALS, RECORDS) for name in values}
    for t in range(TRIALS):
        of_trial = {name: value[t] for name, value in values.items()}
        for n in range(RECORDS):
            own = x.detach()[0 if shared else t, n]
            expected = functional_call(layer, of_trial, (own[None],))[0]
            torch.testing.assert_close(output[t, n].detach(), expected.detach())
            example = _example(layer, of_trial, own, errors[t, n])
            for name, gradient in zip(values, example, strict=True):
                sums[name][t] += weights[t, n] * gradient
                norms[name][t, n] = gradient.pow(2).sum()
    assert list(gradients) == list(values)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient.squared_norms(), norms[name], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(
            gradient.weighted_sum(weights), sums[name].flatten(1), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (nn.Conv2d(2, 4, 3, groups=2), "groups=2"),
        (nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"), "padding_mode='reflect'"),
        (nn.Conv2d(2, 4, 3, padding="same"), "padding='same'"),
    ],
)
def test_a_convolution_the_rule_does_not_cover_is_refused(layer: nn.Module, reason: str) -> None:
    assert RULES[nn.Conv2d].refusal(layer) == reason
