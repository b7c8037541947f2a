"""Losses on the trial axis are those of each model by itself."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedsim import evaluation
from fedsim.models import build, initial_parameters, unflatten


@pytest.mark.parametrize("block", [1, 30, 300, 10_000])
@pytest.mark.parametrize(
    ("name", "frozen", "classes"), [("mlp", "", 3), ("mlp", "1", 3), ("adult-mlp", "", 2)]
)
def test_losses_and_predictions_equal_a_loop(
    name: str, frozen: str, classes: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(evaluation.BLOCK_SCALARS, "cpu", block * evaluation.OUTPUT_PER_INPUT)

    def network() -> nn.Module:
        return build(name, (4,), classes, 5, frozen=frozen)

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


def test_no_forward_pass_is_larger_than_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = 1000
    monkeypatch.setitem(evaluation.BLOCK_SCALARS, "cpu", budget)
    largest = []

    def note(flat: Tensor, shapes: dict[str, torch.Size]) -> dict[str, Tensor]:
        largest.append(flat.shape)
        return unflatten(flat, shapes)

    sizes = []
    model = build("linear", (4,), 3, 0)
    model.register_forward_hook(lambda module, inputs, output: sizes.append(len(inputs[0])))
    monkeypatch.setattr(evaluation, "unflatten", note)
    parameters = initial_parameters(lambda: build("linear", (4,), 3, 0), 0, range(50))
    evaluation.evaluate(model, parameters, torch.rand(40, 4), torch.zeros(40, dtype=torch.long))
    assert max(sizes) * 4 * evaluation.OUTPUT_PER_INPUT <= budget
    assert len(largest) > 50  # the trials too, one block after another
