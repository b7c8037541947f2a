"""Clipped sums on the trial axis equal a loop over trials and records, and Opacus."""

import copy
import math

import opacus
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from adversaries.errors import InputError
from fedsim.common.memory import peak_bytes
from fedsim.learning.training import clipping
from fedsim.learning.training.clipped_block import MARGIN, clipping_factors, joint_norms
from fedsim.learning.training.clipping import Clipper
from fedsim.learning.training.gradients import Formed
from fedsim.learning.training.models import ChannelAffine, build, initial_parameters
from fedsim.learning.training.tasks import per_example

TRIALS, RECORDS = 4, 6


def _game(name, shape):
    generator = torch.Generator().manual_seed(3)
    model = build(name, shape, 3, 7)
    parameters = initial_parameters(lambda: build(name, shape, 3, 7), 0, range(TRIALS))
    features = torch.rand(RECORDS, *shape, generator=generator)
    return model, parameters, features, torch.arange(RECORDS) % 3


def _gradient(model, flat, feature, label):
    """One trial, one record, plain autograd in float64."""
    model = copy.deepcopy(model).double()
    trained = [p for p in model.parameters() if p.requires_grad]
    nn.utils.vector_to_parameters(flat.double(), trained)
    feature = feature.double() if feature.is_floating_point() else feature
    logits = model(feature[None])
    if logits.shape[-1] == 1:
        loss = functional.binary_cross_entropy_with_logits(logits[0, 0], label.double())
    else:
        loss = functional.cross_entropy(logits, label[None])
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, trained)])


def _loop(model, parameters, features, labels, weights, bound):
    bound *= 1 - MARGIN  # what clipping leaves to rounding
    total = torch.zeros(parameters.shape, dtype=torch.float64)
    for trial in range(len(parameters)):
        for record in range(len(labels)):
            g = _gradient(model, parameters[trial], features[record], labels[record])
            total[trial] += weights[trial, record] * g * min(1.0, bound / float(g.norm()))
    return total


GAMES = [("linear", (5,)), ("mlp", (1, 4, 4)), ("mnist-cnn", (1, 12, 12))]
WEIGHTS = torch.tensor([[1.0, 0, 1, 1, 1, 0]] * 2 + [[1.0] * 6] * 2)


@pytest.mark.parametrize(("name", "shape"), GAMES)
@pytest.mark.parametrize("block", [1, 2**15, 2**22])
def test_the_sum_equals_a_loop_over_trials_and_records(name, shape, block, monkeypatch):
    monkeypatch.setitem(clipping.BLOCK_BYTES, "cpu", block)
    model, parameters, features, labels = _game(name, shape)
    clipper = Clipper(model, 0.7)
    assert clipper.fallbacks(features[0], labels[0]) == {}
    expected = _loop(model, parameters, features, labels, WEIGHTS, 0.7)
    actual = clipper.clipped_sum(parameters, features, labels, WEIGHTS)
    # Gradients are float32 (6e-8 relative); a network's depth costs a factor of ten.
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 5)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 5)

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)))


class SkipFromTheInput(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 5)

    def forward(self, x):
        return x + torch.tanh(self.layer(x))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.head, self.relu = nn.Linear(4, 3), nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.relu(self.first(x))
        x = self.relu(x + self.second(x))
        return self.head(x.mean((-2, -1)))


def _conv(*layers):
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(3))


class Words(nn.Module):
    """An embedding whose table is tied to the output layer, as in language models."""

    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(5, 4), nn.LayerNorm(4)
        self.output = nn.Linear(4, 5, bias=False)
        self.output.weight = self.table.weight

    def forward(self, x):
        return self.output(self.norm(self.table(x).mean(1)))


class Token(nn.Module):
    """A parameter of its own beside its layers, as in vision transformers."""

    def __init__(self):
        super().__init__()
        self.token, self.layer = nn.Parameter(torch.ones(5)), nn.Linear(5, 3)

    def forward(self, x):
        return self.layer(x + self.token)


class Scaled(nn.Module):
    """A layer of one number, which has no axis at all."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return x * self.scale


class Summed(nn.Module):
    """Adds positions up; the gradient of each is one and the same number in memory."""

    def forward(self, x):
        return x.sum((2, 3))


def _frozen(model, *names):
    model(torch.zeros(1, 2, 6, 5) if isinstance(model[0], nn.Conv2d) else torch.zeros(1, 5))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in names)
    return model


def _fixed_signs():
    affine = ChannelAffine(4).requires_grad_(False)
    affine.weight.copy_(torch.tensor([1.0, -1.0, 0.0, 2.0]))
    return _conv(nn.Conv2d(2, 4, 3), nn.ReLU(), affine, nn.MaxPool2d(2))


# What goes through torch.func, by the layer's name; "" is the whole model.
NETWORKS = {
    "stride, padding and dilation": (
        lambda: _conv(
            nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 2)),
            nn.ReLU(inplace=True),
            nn.Conv2d(3, 4, 3, stride=2, padding=1, dilation=(1, 2), bias=False),
            nn.AvgPool2d(2),
        ),
        (2, 9, 8),
        {},
    ),
    "one logit": (lambda: nn.Sequential(nn.Linear(5, 4), nn.Sigmoid(), nn.Linear(4, 1)), (5,), {}),
    "residual": (Residual, (2, 6, 5), {}),
    "tied": (Tied, (5,), {}),
    "words": (Words, (6,), {}),
    "called twice": (Twice, (5,), {}),
    "first layer frozen": (
        lambda: _frozen(
            nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)), "0.weight", "0.bias"
        ),
        (5,),
        {},
    ),
    "middle layer frozen": (
        lambda: _frozen(
            _conv(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 2), nn.ReLU()),
            "2.weight",
            "2.bias",
        ),
        (2, 6, 5),
        {},
    ),
    "bias frozen": (lambda: _frozen(_conv(nn.Conv2d(2, 4, 3)), "0.bias"), (2, 6, 5), {}),
    "skip from the input": (SkipFromTheInput, (5,), {}),
    "token": (Token, (5,), {"": "Token has no rule"}),
    "affine behind which positions are added": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 2), ChannelAffine(4), Summed(), nn.Linear(4, 3)),
        (2, 4, 3),
        {},
    ),
    # Trials draw scales of both signs; the second convolution is formed by rows of its kernel.
    "pooling behind signs": (
        lambda: _conv(
            *(nn.Conv2d(2, 8, 3), nn.ReLU(), ChannelAffine(8), nn.MaxPool2d(2)),
            nn.Conv2d(8, 4, 3, stride=(1, 2), padding=(2, 1), dilation=(2, 1)),
            *(nn.ReLU(), nn.MaxPool2d(2, stride=1, padding=1)),
        ),
        (2, 12, 11),
        {},
    ),
    "an activation used twice": (
        lambda: _conv(
            nn.Conv2d(2, 4, 2), *[nn.ReLU()] * 2, nn.MaxPool2d(2), nn.Conv2d(4, 4, 1), nn.ReLU()
        ),
        (2, 6, 5),
        {},
    ),
    "pooling behind a frozen sign": (_fixed_signs, (2, 6, 5), {}),
    "a scalar": (
        lambda: nn.Sequential(nn.Linear(5, 4), Scaled(), nn.Linear(4, 3)),
        (5,),
        {"1": "Scaled has no rule"},
    ),
    "a layer without a rule": (
        lambda: nn.Sequential(nn.Linear(5, 4), nn.RMSNorm(4), nn.Linear(4, 3)),
        (5,),
        {"1": "RMSNorm has no rule"},
    ),
}


@pytest.mark.parametrize("trials", [1, TRIALS])
@pytest.mark.parametrize("network", NETWORKS)
def test_layer_by_layer_and_torch_func_both_equal_the_loop(network, trials):
    builder, shape, fallbacks = NETWORKS[network]
    torch.manual_seed(1)
    model = builder()
    features, labels = torch.randn(RECORDS, *shape), torch.arange(RECORDS) % 3
    if network == "one logit":
        labels = labels % 2
    if network == "words":
        features = torch.randint(0, 5, (RECORDS, *shape))
    else:
        model(features)  # lazy layers
    size = sum(p.numel() for p in model.parameters() if p.requires_grad)
    parameters, weights = 0.5 * torch.randn(trials, size), WEIGHTS[:trials]
    clipper = Clipper(model, 0.7)
    found = clipper.fallbacks(features[0], labels[0])
    assert set(found) == set(fallbacks)
    assert all(fallbacks[name] in reason for name, reason in found.items())
    expected = _loop(model, parameters, features, labels, weights, 0.7)
    by_func = Clipper(model, 0.7, layer_by_layer=False)
    for way in (clipper, by_func):
        actual = way.clipped_sum(parameters, features, labels, weights)
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
    each = clipper.clipped_gradients(parameters, features, labels)
    torch.testing.assert_close(
        each, by_func.clipped_gradients(parameters, features, labels), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(("name", "shape"), GAMES)
def test_sampled_records_are_gathered_and_equal_the_loop(name, shape, share):
    model, parameters, features, labels = _game(name, shape)
    generator = torch.Generator().manual_seed(5)
    weights = (torch.rand(TRIALS, RECORDS, generator=generator) < share).float()
    expected = _loop(model, parameters, features, labels, weights, 0.7)
    for threads in (1, 3):
        actual = Clipper(model, 0.7, threads).clipped_sum(parameters, features, labels, weights)
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "shape"), GAMES)
def test_a_weight_of_zero_removes_a_record_exactly(name, shape):
    model, parameters, features, labels = _game(name, shape)
    weights = torch.ones(TRIALS, RECORDS)
    weights[:, 2] = 0
    clipper = Clipper(model, 0.7)
    one = clipper.clipped_sum(parameters, features, labels, weights)
    features[2], labels[2] = 1 - features[2], 2
    assert torch.equal(clipper.clipped_sum(parameters, features, labels, weights), one)


def test_no_records_sum_to_zero():
    model, parameters, features, labels = _game("mlp", (1, 4, 4))
    assert not Clipper(model, 0.7).clipped_sum(parameters, features[:0], labels[:0]).any()


@opacus.grad_sample.register_grad_sampler(ChannelAffine)
def _channel_affine(layer, inputs, errors):
    product = (inputs[0] * errors).flatten(2).sum(-1)
    return {layer.weight: product, layer.bias: errors.flatten(2).sum(-1)}


OPACUS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)), (5,)),
    "mnist-cnn": (lambda: build("mnist-cnn", (1, 12, 12), 3, 7), (1, 12, 12)),
    "adult-mlp": (lambda: build("adult-mlp", (5,), 2, 7), (5,)),
    "convolution over space": (lambda: _head(nn.Conv3d(2, 4, 2), 24), (2, 3, 4, 2)),
    "embedding": (lambda: nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(24, 3)), (6,)),
    "layer norm": (
        lambda: nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 3)),
        (5,),
    ),
    "group norm": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 2), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(80, 3)
        ),
        (2, 6, 5),
    ),
}


def _head(layer, size):
    return nn.Sequential(layer, nn.Tanh(), nn.Flatten(), nn.Linear(size, 3))


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("network", OPACUS)
def test_the_sum_equals_opacus(network):
    builder, shape = OPACUS[network]
    torch.manual_seed(2)
    model, bound = builder(), 0.7
    features = torch.randn(RECORDS, *shape)
    labels = torch.arange(RECORDS) % (2 if network == "adult-mlp" else 3)
    if network == "embedding":
        features = torch.randint(0, 5, (RECORDS, *shape))
    size = sum(p.numel() for p in model.parameters())
    parameters = 0.5 * torch.randn(TRIALS, size)
    clipper = Clipper(model, bound)
    assert clipper.fallbacks(features[0], labels[0]) == {}
    actual = clipper.clipped_sum(parameters, features, labels)
    for trial in range(TRIALS):
        single = copy.deepcopy(model)
        nn.utils.vector_to_parameters(parameters[trial], single.parameters())
        optimizer = opacus.optimizers.DPOptimizer(
            torch.optim.SGD(single.parameters(), lr=1.0),
            noise_multiplier=0.0,
            max_grad_norm=bound * (1 - MARGIN),
            expected_batch_size=1,
        )
        wrapped = opacus.GradSampleModule(single)
        per_example(wrapped(features), labels).mean().backward()
        optimizer.clip_and_accumulate()
        opacus_sum = torch.cat([p.summed_grad.flatten() for p in wrapped.parameters()])
        # Opacus divides by |g| + 1e-6; relative to the norm of a sum of a few unit vectors.
        distance = (actual[trial] - opacus_sum).norm() / actual[trial].norm()
        assert float(distance) < 1e-5


@pytest.mark.slow
def test_a_residual_network_of_torchvision_equals_torch_func():
    torch.manual_seed(0)
    model = build("torchvision:resnet18", (3, 32, 32), 10, 1, batch_norm="group-norm")
    size = sum(p.numel() for p in model.parameters())
    generator = torch.Generator().manual_seed(0)
    start = torch.cat([p.detach().flatten() for p in model.parameters()])
    parameters = start + 0.01 * torch.randn(2, size, generator=generator)
    features, labels = torch.rand(3, 3, 32, 32, generator=generator), torch.arange(3)
    weights = torch.tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    clipper = Clipper(model, 1.0)
    assert clipper.fallbacks(features[0], labels[0]) == {}
    actual = clipper.clipped_sum(parameters, features, labels, weights)
    by_func = Clipper(model, 1.0, layer_by_layer=False)
    expected = by_func.clipped_sum(parameters, features, labels, weights)
    assert float(((actual - expected).norm(dim=1) / expected.norm(dim=1)).max()) < 1e-5


@pytest.mark.parametrize("layer_by_layer", [True, False])
@pytest.mark.parametrize("bound", [0.3, float("inf")])
@pytest.mark.parametrize("members", [1, 2])
def test_distances_are_those_of_single_clipped_gradients(
    members, bound, layer_by_layer, monkeypatch
):
    model, parameters, features, labels = _game("mlp", (5,))
    groups = torch.randperm(RECORDS, generator=torch.Generator().manual_seed(0))
    groups = groups.unflatten(0, (-1, members))
    expected = torch.empty(TRIALS, len(groups), dtype=torch.float64)
    for trial, group in ((t, g) for t in range(TRIALS) for g in range(len(groups))):
        gradients = [
            _gradient(model, parameters[trial], features[record], labels[record])
            for record in groups[group]
        ]
        clipped = [g * min(1.0, bound / float(g.norm())) for g in gradients]
        expected[trial, group] = (clipped[0] - clipped[1] if members == 2 else clipped[0]).norm()
    clipper = Clipper(model, bound, layer_by_layer=layer_by_layer)
    found = clipper.clipped_distances(parameters, features, labels, groups)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    # One group at a time is what is left of a block where memory is short.
    monkeypatch.setitem(clipping.BLOCK_BYTES, "cpu", 1)
    one_by_one = clipper.clipped_distances(parameters, features, labels, groups)
    torch.testing.assert_close(one_by_one, found, rtol=1e-6, atol=1e-7)


def test_many_distances_take_the_memory_of_a_block(monkeypatch):
    model, parameters, features, labels = _game("mlp", (5,))
    clipper = Clipper(model, 1.0)
    groups = torch.arange(400).remainder(RECORDS).reshape(200, 2)

    def peak():
        return peak_bytes(
            lambda: clipper.clipped_distances(parameters, features, labels, groups),
            parameters.device,
        )

    peak()  # what is made once and kept
    everything = peak()
    limit = everything // 8
    monkeypatch.setitem(clipping.BLOCK_BYTES, "cpu", limit)
    assert peak() <= limit + 8 * TRIALS * len(groups) * 2


@pytest.mark.parametrize(("name", "shape"), GAMES)
def test_as_many_gradients_are_formed_at_once_as_a_threads_memory_allows(name, shape):
    model, parameters, features, labels = _game(name, shape)
    limit, one = 2**22, parameters[:1]
    clipper = Clipper(model, 1.0, threads=2, max_memory=2 * limit)
    count = clipper.formed_at_once(features[0], labels[0])
    assert count > 1
    many = (features[:1].expand(count, *shape), labels[:1].expand(count))
    clipper.clipped_gradients(one, *many)  # what is made once and kept
    peak = peak_bytes(lambda: clipper.clipped_gradients(one, *many), one.device)
    assert 0.4 * limit < peak <= limit
    assert Clipper(model, 1.0, max_memory=1).formed_at_once(features[0], labels[0]) == 1


def test_threads_do_not_change_a_bit(monkeypatch):
    # Blocks of one trial, many of them, so that the threads really run at the same time.
    monkeypatch.setitem(clipping.BLOCK_BYTES, "cpu", 2000)
    model, parameters, features, labels = _game("mlp", (1, 4, 4))
    parameters = parameters.repeat(25, 1)
    expected = Clipper(model, 0.7).clipped_sum(parameters, features, labels)
    assert torch.equal(
        Clipper(model, 0.7, threads=4).clipped_sum(parameters, features, labels), expected
    )


CUTS = [(name, shape, share) for name, shape in GAMES for share in (1.0, 0.5, 0.1)]


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize(("name", "shape", "share"), CUTS)
def test_less_memory_cuts_finer_keeps_its_promise_and_changes_no_result(
    name, shape, share, sampled
):
    model, parameters, features, labels = _game(name, shape)
    parameters = parameters.repeat(10, 1)
    weights = torch.ones(len(parameters), RECORDS)
    if sampled:
        weights[:, ::2] = 0
    records = int(weights[0].sum())
    whole = Clipper(model, 0.7)
    expected = whole.clipped_sum(parameters, features, labels, weights)
    most = whole.cut(features[0], labels[0], len(parameters), records, sampled).bytes
    least = whole.cut(features[0], labels[0], 1, 1, sampled).bytes
    clipper = Clipper(model, 0.7, max_memory=int(max(least, share * most)))
    cut = clipper.cut(features[0], labels[0], len(parameters), records, sampled)
    assert cut.bytes <= max(least, share * most)
    results = []
    peak = peak_bytes(
        lambda: results.append(clipper.clipped_sum(parameters, features, labels, weights)),
        torch.device("cpu"),
    )
    # The result itself, the weights' order, and how far four small blocks tell about a large one.
    assert peak <= parameters.numel() * 8 + weights.numel() * 16 + 1.1 * cut.bytes
    # Other blocks add float32 numbers in another order.
    torch.testing.assert_close(results[0], expected, rtol=1e-6, atol=1e-6)


def test_too_little_memory_for_one_record_is_refused_in_words():
    model, parameters, features, labels = _game("mlp", (1, 4, 4))
    with pytest.raises(InputError, match=r"run\.max-memory leaves .* one record takes"):
        Clipper(model, 0.7, max_memory=100).clipped_sum(parameters, features, labels)


def test_bfloat16_reaches_a_convolution_through_a_frozen_one():
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Conv2d(4, 3, 2), nn.Flatten(), nn.Linear(18, 3))
    model[0].requires_grad_(False)
    size = sum(p.numel() for p in model.parameters() if p.requires_grad)
    generator = torch.Generator().manual_seed(0)
    parameters = torch.randn(TRIALS, size, generator=generator)
    features = torch.randn(RECORDS, 2, 6, 5, generator=generator)
    labels = torch.arange(RECORDS) % 3
    expected = Clipper(model, 0.7).clipped_sum(parameters, features, labels)
    actual = Clipper(model, 0.7, precision="bf16").clipped_sum(parameters, features, labels)
    assert 0 < float((actual - expected).norm() / expected.norm()) < 0.1


@pytest.mark.parametrize(("name", "shape"), GAMES)
def test_bfloat16_is_close_and_still_clips_in_full_precision(name, shape):
    model, parameters, features, labels = _game(name, shape)
    exact, rough = Clipper(model, 0.7), Clipper(model, 0.7, precision="bf16")
    expected = exact.clipped_sum(parameters, features, labels)
    actual = rough.clipped_sum(parameters, features, labels)
    assert not torch.equal(actual, expected)
    # 0.4 % in every product, and a maximum or a ReLU here and there that falls the other way.
    assert float((actual - expected).norm() / expected.norm()) < 0.1
    # One record at a time: its sum is its clipped gradient.
    for record in range(RECORDS):
        alone = slice(record, record + 1)
        norms = rough.clipped_sum(parameters, features[alone], labels[alone]).norm(dim=-1)
        assert float(norms.max()) <= 0.7 * (1 + 1e-5)
    # What a belief rests on does not lose a bit.
    each = rough.clipped_gradients(parameters, features, labels)
    assert torch.equal(each, exact.clipped_gradients(parameters, features, labels))


@settings(max_examples=30)
@given(st.floats(1e-6, 1e6), st.floats(1e-3, 10))
def test_no_clipped_gradient_is_longer_than_the_clipping_norm(scale, bound):
    model, parameters, features, labels = _game("mlp", (1, 4, 4))
    gradients = Clipper(model, bound).clipped_gradients(parameters * scale, features, labels)
    assert float(gradients.norm(dim=-1).max()) <= bound * (1 + 1e-6)


def test_the_norm_runs_over_all_parameters_together():
    # Gradients (3,4), (0,1), (6,8) clip at C = 3 to (1.8,2.4), (0,1), (1.8,2.4).
    gradients = [
        Formed(torch.tensor([[[3.0], [0.0], [6.0]]])),
        Formed(torch.tensor([[[4.0], [1.0], [8.0]]])),
    ]
    factors = clipping_factors(joint_norms(gradients), 3.0)
    expected = torch.tensor([[0.6, 1.0, 0.3]], dtype=torch.float64)
    torch.testing.assert_close(factors, expected, rtol=2 * MARGIN, atol=0.0)
    assert bool((factors <= expected).all())


def test_a_zero_gradient_stays_zero():
    assert clipping_factors(joint_norms([Formed(torch.zeros(1, 1, 2))]), 3.0).item() == 1.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_an_error_and_not_clipped_away(bad):
    model, parameters, features, labels = _game("mlp", (1, 4, 4))
    features[1, 0, 0, 0] = bad
    clipper, left_out = Clipper(model, 3.0), torch.ones(len(parameters), len(labels))
    left_out[:, 1] = 0  # also where no sum has the record
    for compute in (
        lambda: clipper.clipped_sum(parameters, features, labels),
        lambda: clipper.clipped_sum(parameters, features, labels, left_out),
        lambda: clipper.clipped_gradients(parameters, features, labels),
        lambda: Clipper(model, math.inf).clipped_sum(parameters, features, labels),
    ):
        with pytest.raises(FloatingPointError, match="diverged"):
            compute()
