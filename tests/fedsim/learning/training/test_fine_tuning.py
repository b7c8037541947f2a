"""Training starts from a file and changes little: chosen layers, or low-rank adapters."""

import logging
import re
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.func import functional_call
from torchvision import models as networks

import fedsim
from adversaries.errors import InputError
from fedsim.configuration.files import load
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game import federation
from fedsim.learning.training import evaluation, pretrained, saved_model, trainable
from fedsim.learning.training.clipping import Clipper
from fedsim.learning.training.models import (
    build,
    initial_parameters,
    parameter_shapes,
    structural_model,
    unflatten,
)
from fedsim.learning.training.trainable import train_only
from fedsim.reports import model_card

ROOT = Path(__file__).parents[4]
C = 0.3


class Attentive(nn.Module):
    """Attention over the positions of a record, and a Linear layer over their mean."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        """Return logits [N, 3] of x [N, positions, 4]."""
        seen, _ = self.attention(x, x, x, need_weights=False)
        return self.head((x + seen).mean(1))


class Residual(nn.Module):
    """A shortcut past the first layer, whose input all trials share."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(4, 4), nn.Linear(12, 3)

    def forward(self, x):
        """Return logits [N, 3] of x [N, 3, 4]."""
        return self.head((x + self.first(x).relu()).flatten(1))


def _residual():
    model = Residual()
    train_only(model, "head")
    return trainable.adapt(model, 2)


def _attentive():
    model = Attentive()
    train_only(model, "head")
    return trainable.adapt(model, 2)


def _perceptron():
    return build("mlp", (3, 4), 3, 5, trainable="3.bias", lora_rank=2)


@pytest.mark.parametrize(
    ("make", "names", "layer_by_layer"),
    [
        (_perceptron, ["1.down.weight", "1.up.weight", "3.base.bias", "3.down.weight"], True),
        (_residual, ["first.down.weight", "first.up.weight", "head.weight"], True),
        (_attentive, ["attention.out_proj.down.weight"], False),
    ],
)
def test_adapters_are_clipped_record_by_record(make, names, layer_by_layer):
    torch.manual_seed(0)
    model = structural_model(make, 0)
    shapes = parameter_shapes(model)
    assert set(names) <= set(shapes)
    assert not any(name.endswith(("original", "base.weight")) for name in shapes)
    theta = initial_parameters(make, 0, range(2))
    theta += 0.3 * torch.randn(theta.shape)  # away from B = 0
    features, labels = torch.randn(6, 3, 4), torch.arange(6) % 3
    clipper = Clipper(model, C)
    assert ("" not in clipper.fallbacks(features[0], labels[0])) == layer_by_layer
    found = clipper.clipped_sum(theta, features, labels)
    outputs = evaluation.outputs(model, theta, features)
    each = torch.zeros(2, 6, theta.shape[1], dtype=torch.float64)
    for trial in range(2):
        for record in range(6):
            values = unflatten(theta[trial].clone().requires_grad_(), shapes)
            logits = functional_call(model, values, (features[record : record + 1],))
            torch.testing.assert_close(outputs[trial, record], logits[0])
            loss = nn.functional.cross_entropy(logits, labels[record : record + 1])
            flat = [g.flatten() for g in torch.autograd.grad(loss, list(values.values()))]
            gradient = torch.cat(flat).double()
            each[trial, record] = gradient * min(1.0, C / float(gradient.norm()))
    assert float(each.norm(dim=-1).max()) == pytest.approx(C)  # some are clipped
    torch.testing.assert_close(found, each.sum(1), rtol=1e-4, atol=1e-6)
    without = clipper.clipped_sum(theta, features[1:], labels[1:])
    assert float((found - without).norm(dim=1).max()) <= C * (1 + 1e-5)


def test_training_begins_with_the_network_as_it_was_and_moves_b_alone():
    torch.manual_seed(0)
    plain = build("mlp", (4,), 3, 5)
    features, labels = torch.randn(8, 4), torch.arange(8) % 3
    expected = plain(features)
    train_only(plain, "")
    model = trainable.adapt(plain, 2)
    torch.testing.assert_close(model(features), expected)
    torch.nn.functional.cross_entropy(model(features), labels).backward()
    moved = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    assert moved == {"1.up.weight", "3.up.weight"}


@pytest.mark.parametrize("make", [_perceptron, _attentive])
def test_a_merged_network_is_plain_and_computes_the_same(make):
    torch.manual_seed(0)
    model, x = make(), torch.randn(5, 3, 4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    expected = model(x)
    plain = trainable.merge(model)
    torch.testing.assert_close(plain(x), expected)
    own = Attentive() if make is _attentive else build("mlp", (3, 4), 3, 5)
    assert plain.state_dict().keys() == own.state_dict().keys()


def test_a_saved_model_needs_neither_adapters_nor_the_file_that_it_started_from(small, tmp_path):
    started = build("mlp", (1, 8, 8), 10, 16)
    path = tmp_path / "weights.safetensors"
    save_file(started.state_dict(), path)
    config = small(
        {
            "model.name": "mlp",
            "model.hidden": 16,
            "model.weights": str(path),
            "model.lora-rank": 2,
        }
    )
    known = federation.load(config)
    features, _ = known.held_out()
    theta = federation.initial_parameters(config, known, range(1))
    torch.testing.assert_close(known.outputs(theta, features)[0], started(features))
    theta += 0.1
    saved_model.write_model(
        tmp_path,
        config.model,
        config.data.public_schema,
        known.model,
        known.split.dataset,
        theta[0],
    )
    path.unlink()
    loaded = saved_model.load(tmp_path)
    assert saved_model.describe(tmp_path).network.lora_rank == 2
    torch.testing.assert_close(loaded(features), known.outputs(theta, features)[0])


def _saved(path, *sizes):
    values = build("mlp", (4,), sizes[1], sizes[0]).state_dict()
    save_file(values, path)
    return values


def test_a_classifier_of_another_size_starts_anew_and_says_so(tmp_path, caplog):
    values = _saved(tmp_path / "w", 5, 3)
    with caplog.at_level(logging.WARNING):
        model = build("mlp", (4,), 7, 5, weights=str(tmp_path / "w"))
    assert torch.equal(model.get_parameter("1.weight"), values["1.weight"])
    assert "'3.weight', '3.bias'" in caplog.text


def test_weights_that_do_not_fit_are_refused_by_name(tmp_path):
    path = tmp_path / "w"
    _saved(path, 5, 3)
    with pytest.raises(InputError, match=r"the shapes differ for '1.weight', '1.bias'"):
        build("mlp", (4,), 3, 6, weights=str(path))
    with pytest.raises(InputError, match=r"has no '1.weight'.*network has no '0.weight'"):
        save_file({"0.weight": torch.ones(2)}, path)
        build("mlp", (4,), 3, 5, weights=str(path))
    with pytest.raises(InputError, match=r"numbers in '1.weight' that are not finite"):
        save_file({"1.weight": torch.tensor([torch.nan])}, path)
        build("mlp", (4,), 3, 5, weights=str(path))
    with pytest.raises(InputError, match=r"but model\.weights-sha256 is 00"):
        build("mlp", (4,), 3, 5, weights=str(path), weights_sha256="0" * 64)
    with pytest.raises(InputError, match="not a safetensors file"):
        path.write_bytes(b"pickle")
        build("mlp", (4,), 3, 5, weights=str(path))


def test_what_batch_norm_learned_is_kept_by_channel_affine_alone(tmp_path):
    torch.manual_seed(0)
    pretrained_network = networks.get_model("mobilenet_v3_small", weights=None, num_classes=4)
    x = torch.randn(2, 3, 64, 64)
    pretrained_network(x)  # moves the running statistics
    save_file(pretrained_network.state_dict(), tmp_path / "w")
    make = partial(
        build,
        "torchvision:mobilenet_v3_small",
        (3, 64, 64),
        4,
        weights=str(tmp_path / "w"),
    )
    with torch.no_grad():
        expected = pretrained_network.eval()(x)
        torch.testing.assert_close(
            make(batch_norm="channel-affine")(x), expected, rtol=1e-3, atol=1e-5
        )
    with pytest.raises(InputError, match=r"model.batch-norm = \"channel-affine\""):
        make(batch_norm="group-norm")


def test_patterns_choose_what_is_trained():
    model = build("mlp", (4,), 3, 5, trainable="3, *.bias")
    assert list(parameter_shapes(model)) == ["1.bias", "3.weight", "3.bias"]
    with pytest.raises(InputError, match=r"model.trainable names 'fc.\*'.*1.weight, 1.bias, 3.w"):
        build("mlp", (4,), 3, 5, trainable="fc.*")


def test_a_network_without_a_layer_for_adapters_is_refused():
    with pytest.raises(InputError, match=r"model.lora-rank is 2, but"):
        build("linear", (4,), 3, 1, trainable="1", lora_rank=2)


def test_a_file_is_known_by_its_content(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(b"one")
    second.write_bytes(b"one")
    digest = pretrained.digest(str(first))
    assert pretrained.same(str(second), digest)
    second.write_bytes(b"other")
    assert not pretrained.same(str(second), digest)
    assert not pretrained.same("", digest)


@pytest.mark.slow
def test_the_example_of_the_page_is_worth_its_file(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "how-to" / "fine-tuning.md").read_text()
    found = re.search(r"```python\n(.*?)```", page, re.S)
    assert found is not None
    monkeypatch.chdir(tmp_path)
    exec(found[1], {})

    def accuracy(folder, changes):
        given = {"run.out": folder, "privacy.noise-source": "seed"}
        config = load(ROOT / "configs" / "fine-tune-digits.toml", given | changes, "training")
        utility = model_card.read_card(RunDirectory.open(fedsim.train(config).path)).utility
        assert utility is not None
        return utility.accuracy

    alone = {"model.weights": "", "model.trainable": "", "model.lora-rank": 0}
    # 85.8% and 75.4% on average, with standard deviations of 0.8 and 4.1 points.
    assert accuracy("tuned", {}) > accuracy("scratch", alone) + 0.02
    described = saved_model.describe(Path("tuned")).network
    assert described.weights_sha256 == pretrained.digest("fedsim-runs/public.safetensors")
