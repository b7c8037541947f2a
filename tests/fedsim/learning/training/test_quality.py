"""Measures of a classifier agree with scikit-learn's."""

import numpy as np
import pytest
import torch
from sklearn import metrics
from torch.nn import functional

from fedsim.learning.training.quality import area_under_curve, balanced_accuracy, majority_share


def test_they_are_those_of_scikit_learn() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(200, generator=generator) < 0.2).long()
    logits = torch.randn(3, 200, 2, dtype=torch.float64, generator=generator)
    logits[:, :, 1] += labels
    logits[0, :9] = 0.0  # ties
    losses = torch.stack([functional.cross_entropy(x, labels, reduction="none") for x in logits])
    guesses = logits.argmax(-1)
    balanced = balanced_accuracy(guesses == labels, labels)
    areas = area_under_curve(losses, labels, 2)
    assert areas is not None
    for trial in range(3):
        assert float(balanced[trial]) == pytest.approx(
            metrics.balanced_accuracy_score(labels, guesses[trial])
        )
        scores = (logits[trial, :, 1] - logits[trial, :, 0]).numpy().round(5)
        assert float(areas[trial]) == pytest.approx(metrics.roc_auc_score(labels, scores), abs=1e-4)
    assert majority_share(labels) == float((labels == 0).double().mean())


def test_only_two_classes_that_are_both_there_have_an_area() -> None:
    losses, labels = torch.ones(1, 4), torch.tensor([0, 0, 1, 1])
    assert area_under_curve(losses, labels, 3) is None
    assert area_under_curve(losses, torch.zeros_like(labels), 2) is None
    # A model that has become certain: the loss is 0 in float64.
    certain = torch.tensor([[0.0, 0.0, 0.0, 800.0]])
    area = area_under_curve(certain, labels, 2)
    assert area is not None
    assert np.isfinite(float(area))
    assert float(area) == 0.5
