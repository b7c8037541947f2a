"""Losses on the trial axis are those of each model by itself."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedsim.learning.training import evaluation
from fedsim.learning.training.layerwise import LayerwiseModel
from fedsim.learning.training.models import build, initial_parameters


@pytest.mark.parametrize("block", [1, 30, 300, 10_000])
@pytest.mark.parametrize(
    ("name", "trained", "classes"), [("mlp", "", 3), ("mlp", "3", 3), ("adult-mlp", "", 2)]
)
def test_losses_and_predictions_equal_a_loop(name, trained, classes, block, monkeypatch):
    monkeypatch.setitem(evaluation.BLOCK_SCALARS, "cpu", block * evaluation.OUTPUT_PER_INPUT)

    def network():
        return build(name, (4,), classes, 5, trainable=trained)

    model = network()
    parameters = 3 * initial_parameters(network, 0, range(3))
    features, labels = torch.rand(7, 4), torch.arange(7) % classes
    losses, correct = evaluation.evaluate(model, parameters, features, labels)
    for trial in range(3):
        single = copy.deepcopy(model)
        trained = [p for p in single.parameters() if p.requires_grad]
        nn.utils.vector_to_parameters(parameters[trial], trained)
        logits = single(features)
        # One logit s has the likelihood of the two logits (0, s).
        if name == "adult-mlp":
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        expected = functional.cross_entropy(logits, labels, reduction="none")
        torch.testing.assert_close(losses[trial].float(), expected, rtol=1e-5, atol=1e-6)
        assert torch.equal(correct[trial], logits.argmax(-1) == labels)


def test_no_forward_pass_is_larger_than_a_block(monkeypatch):
    budget = 1000
    monkeypatch.setitem(evaluation.BLOCK_SCALARS, "cpu", budget)
    sizes = []
    logits = LayerwiseModel.logits

    def note(model, parameters, features):
        sizes.append((len(parameters), len(features)))
        return logits(model, parameters, features)

    monkeypatch.setattr(LayerwiseModel, "logits", note)
    model = build("linear", (4,), 3, 1)
    parameters = initial_parameters(lambda: build("linear", (4,), 3, 1), 0, range(50))
    evaluation.evaluate(model, parameters, torch.rand(40, 4), torch.zeros(40, dtype=torch.long))
    inputs = 4
    assert all(t * n * inputs * evaluation.OUTPUT_PER_INPUT <= budget for t, n in sizes)
    assert all(t * parameters.shape[1] <= budget for t, _ in sizes)
    assert sum(t * n for t, n in sizes) == 50 * 40


@pytest.mark.parametrize("threads", [1, 4])
def test_a_model_that_torch_func_alone_can_run_is_evaluated_too(threads, monkeypatch):
    monkeypatch.setitem(evaluation.BLOCK_SCALARS, "cpu", 100)  # many blocks

    class Token(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.layer = nn.Parameter(torch.ones(4)), nn.Linear(4, 3)

        def forward(self, x):
            return self.layer(x + self.token)

    model, features, labels = Token(), torch.rand(50, 4), torch.zeros(50, dtype=torch.long)
    before = copy.deepcopy(model)
    parameters = initial_parameters(Token, 0, range(20))
    losses, _ = evaluation.evaluate(model, parameters, features, labels, threads)
    for parameter, old in zip(model.parameters(), before.parameters(), strict=True):
        assert torch.equal(parameter, old)
    for flat, row in zip(parameters, losses, strict=True):
        nn.utils.vector_to_parameters(flat, model.parameters())
        expected = -model(features).log_softmax(-1)[:, 0]
        torch.testing.assert_close(row.float(), expected.detach(), rtol=1e-5, atol=1e-6)
