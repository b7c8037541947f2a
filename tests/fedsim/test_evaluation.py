"""Losses on the trial axis are those of each model by itself."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedsim import evaluation
from fedsim.models import build, initial_parameters


@pytest.mark.parametrize("block", [1, 10, 10_000])
def test_losses_and_predictions_equal_a_loop(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "BLOCK_RECORDS", block)
    model = build("mlp", (4,), 3, 5)
    parameters = initial_parameters(lambda: build("mlp", (4,), 3, 5), 0, range(3))
    features, labels = torch.rand(7, 4), torch.arange(7) % 3
    losses, correct = evaluation.evaluate(model, parameters, features, labels)
    for trial in range(3):
        single = copy.deepcopy(model)
        nn.utils.vector_to_parameters(parameters[trial], single.parameters())
        logits = single(features)
        expected = functional.cross_entropy(logits, labels, reduction="none")
        torch.testing.assert_close(losses[trial].float(), expected, rtol=1e-5, atol=1e-6)
        assert torch.equal(correct[trial], logits.argmax(-1) == labels)
