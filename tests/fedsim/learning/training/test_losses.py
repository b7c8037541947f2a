"""Losses are the negative log-likelihood of a label, for many logits and for one."""

import pytest
import torch
from torch import nn

from fedsim.learning.training.tasks import correct, per_example


@pytest.mark.parametrize("leading", [(), (5,), (2, 3), (2, 3, 2)])
def test_many_logits_give_the_negative_log_softmax(leading):
    logits = torch.randn(*leading, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(logits[..., 0].numel()).reshape(leading) % 4
    log_probabilities = logits - logits.exp().sum(-1, keepdim=True).log()
    expected = -log_probabilities.gather(-1, labels[..., None]).squeeze(-1)
    torch.testing.assert_close(per_example(logits, labels), expected)
    assert torch.equal(correct(logits, labels), log_probabilities.argmax(-1) == labels)


@pytest.mark.parametrize("leading", [(6,), (2, 3)])
def test_one_logit_is_the_log_odds_of_class_one(leading):
    logits = torch.randn(*leading, 1, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(6).reshape(leading) % 2
    # Two logits (0, s) have the same likelihood as one logit s.
    both = torch.cat([torch.zeros_like(logits), logits], dim=-1)
    torch.testing.assert_close(per_example(logits, labels), per_example(both, labels))
    assert torch.equal(correct(logits, labels), correct(both, labels))


@pytest.mark.parametrize("classes", [1, 3])
def test_the_loss_works_under_autocast(classes):
    model = nn.Linear(4, classes)
    features, labels = torch.randn(5, 4), torch.tensor([0, 1, 1, 0, 1])
    with torch.autocast("cpu", torch.bfloat16):
        losses = per_example(model(features), labels)
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, per_example(model(features), labels), rtol=0.05, atol=0.02)
