"""Networks have the published sizes; a model of T trials is one array."""

import pytest
import torch
from torch import nn

from adversaries.errors import InputError
from fedsim.common.randomness import StreamRole, key
from fedsim.learning.training.models import (
    ChannelAffine,
    build,
    check_input,
    flatten,
    frozen_parameters,
    initial_parameters,
    parameter_shapes,
    refuse_layers,
    structural_model,
    unflatten,
)
from fedsim.learning.training.torchvision_networks import replace_batch_norm
from fedsim.learning.training.trainable import train_only


def test_the_paper_network_for_mnist_has_6554_parameters():
    model = build("mnist-cnn", (1, 28, 28), 10, 1)
    assert sum(p.numel() for p in model.parameters()) == 6554
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_unflatten_gives_back_the_parameters_in_order():
    model = build("mlp", (1, 8, 8), 10, 5)
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    named = unflatten(torch.stack([flat, flat + 1]), parameter_shapes(model))
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(named[name], torch.stack([parameter, parameter + 1]))


def test_a_first_model_is_what_pytorch_draws_from_its_seed_and_leaves_its_state_alone():
    def network():
        return build("mlp", (3,), 2, 4)

    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    (drawn,) = initial_parameters(network, 5, [2])
    assert torch.equal(torch.rand(3), expected)
    torch.manual_seed(key(5, StreamRole.INITIAL_MODEL, trial=2) % 2**63)
    assert torch.equal(drawn, flatten(network()))


def test_initial_models_differ_between_trials_and_not_with_the_batch():
    def network():
        return build("linear", (3,), 2, 1)

    together = initial_parameters(network, 5, range(6))
    apart = torch.cat(
        [initial_parameters(network, 5, range(2)), initial_parameters(network, 5, range(2, 6))]
    )
    assert torch.equal(together, apart)
    assert len({tuple(row.tolist()) for row in together}) == 6


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters"),
    [("mlp", (600,), 100, 89_828), ("adult-mlp", (104,), 2, 679), ("mlp", (3, 4, 4), 2, 6_530)],
)
def test_the_reference_networks_for_tables_have_the_published_sizes(
    name, shape, classes, parameters
):
    model = build(name, shape, classes, 128)
    assert sum(p.numel() for p in model.parameters()) == parameters
    check_input(model, name, shape, classes)


BATCH_NORMS = [
    (nn.BatchNorm1d(4), (3, 4, 5)),
    (nn.BatchNorm2d(4), (3, 4, 5, 2)),
    (nn.BatchNorm3d(4), (3, 4, 5, 2, 2)),
    (nn.SyncBatchNorm(4), (3, 4, 5, 2)),
    (nn.InstanceNorm2d(4, affine=True, track_running_stats=True), (3, 4, 5, 2)),
]


@pytest.mark.parametrize(("layer", "shape"), BATCH_NORMS)
def test_layers_that_mix_records_are_refused_by_name_with_what_to_type(layer, shape):
    model = nn.Sequential(nn.Flatten(0, 0), layer)
    with pytest.raises(InputError, match=rf"layer '1' is {type(layer).__name__}.*model.batch-norm"):
        refuse_layers(model)


@pytest.mark.parametrize("kind", ["group-norm", "channel-affine"])
@pytest.mark.parametrize(("layer", "shape"), BATCH_NORMS)
def test_a_replacement_keeps_records_apart(layer, shape, kind):
    model = replace_batch_norm(nn.Sequential(nn.Sequential(layer)), kind)
    refuse_layers(model)
    assert sum(p.numel() for p in model.parameters()) == 8
    x = torch.randn(shape)
    torch.testing.assert_close(model(x)[:1], model(x[:1]))


def test_a_layer_without_scale_and_shift_gets_a_replacement_without():
    for kind in ("group-norm", "channel-affine"):
        model = replace_batch_norm(nn.BatchNorm2d(4, affine=False), kind)
        assert not list(model.parameters())


def test_a_batch_norm_used_in_two_places_stays_one_layer():
    shared = nn.BatchNorm1d(4)
    model = replace_batch_norm(nn.Sequential(shared, nn.Linear(4, 4), shared), "group-norm")
    assert isinstance(model, nn.Sequential)
    assert model[0] is model[2] and isinstance(model[0], nn.GroupNorm)


@pytest.mark.parametrize(
    ("channels", "groups"), [(64, 32), (96, 32), (16, 8), (24, 12), (6, 3), (7, 1), (1, 1)]
)
def test_groups_are_as_many_as_fit_with_two_channels_each(channels, groups):
    layer = replace_batch_norm(nn.BatchNorm2d(channels, eps=0.1), "group-norm")
    assert isinstance(layer, nn.GroupNorm)
    assert (layer.num_groups, layer.eps) == (groups, 0.1)


@pytest.mark.parametrize("spatial", [(), (5,), (5, 3), (5, 3, 2)])
def test_a_channel_affine_is_a_batch_norm_that_has_seen_nothing(spatial):
    affine = ChannelAffine(4)
    affine.weight.data, affine.bias.data = torch.randn(4), torch.randn(4)
    x = torch.randn(2, 4, *spatial)
    expected = nn.functional.batch_norm(
        x, torch.zeros(4), torch.ones(4), affine.weight, affine.bias, eps=0
    )
    torch.testing.assert_close(affine(x), expected)


@pytest.mark.parametrize(
    "layer", [nn.Dropout(), nn.Dropout2d(0.1), nn.RReLU(), nn.MultiheadAttention(4, 1, dropout=0.1)]
)
def test_layers_that_draw_random_numbers_are_refused_by_name(layer):
    with pytest.raises(InputError, match=rf"layer '1' is {type(layer).__name__}.*random"):
        refuse_layers(nn.Sequential(nn.Linear(2, 2), layer))


def test_dropout_with_probability_zero_is_accepted():
    refuse_layers(nn.Sequential(nn.Dropout(0.0), nn.MultiheadAttention(4, 1)))


def test_a_network_of_torchvision_is_built_by_name():
    model = build("torchvision:resnet18", (3, 32, 32), 10, 1, batch_norm="group-norm")
    # 11 689 512 with 1000 classes (torchvision's page), of which the head's are 513 each.
    assert sum(p.numel() for p in model.parameters()) == 11_689_512 - 990 * 513
    check_input(model, "torchvision:resnet18", (3, 32, 32), 10)


@pytest.mark.parametrize("name", ["squeezenet1_1", "mobilenet_v3_small"])
def test_networks_of_torchvision_come_without_their_dropout(name):
    model = build(f"torchvision:{name}", (3, 64, 64), 3, 1, batch_norm="channel-affine")
    x = torch.rand(1, 3, 64, 64)
    assert torch.equal(model(x), model(x))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["efficientnet_b0", "convnext_tiny", "swin_t", "googlenet"])
def test_other_networks_of_torchvision_draw_no_random_numbers_either(name):
    model = build(f"torchvision:{name}", (3, 64, 64), 3, 1, batch_norm="group-norm")
    check_input(model, name, (3, 64, 64), 3)


def test_a_network_of_torchvision_with_batch_norm_is_refused_by_default():
    with pytest.raises(InputError, match=r"layer 'bn1' is BatchNorm2d.*model.batch-norm"):
        build("torchvision:resnet18", (3, 32, 32), 10, 1)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "complaint"),
    [
        ("torchvision:squeezenet1_1", (1, 28, 28), 3, "does not take records of shape"),
        ("mlp", (5,), 2, r"output for one record of 3 classes is \(1, 2\)"),
    ],
)
def test_a_record_that_does_not_fit_is_refused_in_one_line(name, shape, classes, complaint):
    model = build(name, shape, classes, 4)
    with pytest.raises(InputError, match=complaint) as caught:
        check_input(model, name, shape, 3)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("trained", ["3", "3.weight, 3.bias", " 3.bias,3 "])
def test_other_parameters_are_not_in_the_vector_and_the_same_for_all(trained):
    def network():
        return build("mlp", (4,), 3, 5, trainable=trained)

    model = structural_model(network, 7)
    assert list(parameter_shapes(model)) == ["3.weight", "3.bias"]
    assert frozen_parameters(model) == 25
    theta = initial_parameters(network, 7, range(3))
    assert theta.shape == (3, 18)
    full = initial_parameters(lambda: build("mlp", (4,), 3, 5), 7, range(3))
    assert torch.equal(theta, full[:, 25:])
    torch.manual_seed(0)
    again = structural_model(network, 7)
    assert torch.equal(model.get_parameter("1.weight"), again.get_parameter("1.weight"))
    other = structural_model(network, 8)
    assert not torch.equal(model.get_parameter("1.weight"), other.get_parameter("1.weight"))


def test_trained_layers_are_named_by_whole_parts():
    model = nn.Sequential(*[nn.Linear(2, 2) for _ in range(12)])
    train_only(model, "1")
    assert [name for name, p in model.named_parameters() if p.requires_grad] == [
        "1.weight",
        "1.bias",
    ]


@pytest.mark.parametrize(
    ("trained", "complaint"), [("1.wieght", "did you mean '1.weight'"), ("0", "'0'")]
)
def test_what_cannot_be_trained_is_refused(trained, complaint):
    with pytest.raises(InputError, match=complaint):
        build("mlp", (4,), 3, 5, trainable=trained)


@pytest.mark.parametrize(
    ("name", "shape", "complaint"),
    [
        ("mpl", (3,), "did you mean 'mlp'"),
        ("mnist-cnn", (30,), "needs images"),
        ("resnet18", (3, 32, 32), "write 'torchvision:resnet18'"),
        ("torchvision:resnet19", (3, 32, 32), "did you mean 'torchvision:resnet1"),
    ],
)
def test_a_model_that_does_not_exist_or_fit_is_refused(name, shape, complaint):
    with pytest.raises(InputError, match=complaint):
        build(name, shape, 2, 8)


def test_one_logit_is_for_two_classes():
    with pytest.raises(InputError, match="two classes"):
        build("adult-mlp", (104,), 3, 8)
