"""Measures of a classifier agree with scikit-learn's."""

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn import metrics
from torch.nn import functional

from fedsim.learning.training import quality
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
        scores = (logits[trial, :, 1] - logits[trial, :, 0]).numpy().round(3)
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


def test_a_model_that_says_the_same_of_all_has_half_of_the_area() -> None:
    labels = torch.tensor([0, 1] * 50)
    for odds in torch.linspace(-3, 3, 37):
        logits = torch.stack([torch.zeros(100), odds.expand(100)], 1)
        losses = functional.cross_entropy(logits, labels, reduction="none")[None]
        area = area_under_curve(losses, labels, 2)
        assert area is not None
        assert float(area) == 0.5, float(odds)


def test_recall_and_precision_are_counted_and_have_exact_intervals() -> None:
    draw = torch.Generator().manual_seed(2)
    labels = torch.randint(3, (200,), generator=draw)
    logits = torch.randn(200, 3, generator=draw) + 2 * torch.eye(3)[labels]
    answers = logits.argmax(1)
    found = quality.confusion(logits, labels)
    for label in range(3):
        right = int(((labels == label) & (answers == label)).sum())
        for share, of in (
            (found.recall(label, 0.9), int((labels == label).sum())),
            (found.precision(label, 0.9), int((answers == label).sum())),
        ):
            assert share is not None
            assert share.value == right / of
            low, high = stats.beta.ppf(
                (0.05, 0.95), (right, right + 1), (of - right + 1, of - right)
            )
            assert (share.interval.low, share.interval.high) == pytest.approx((low, high))


def test_one_logit_is_two_classes_and_a_class_without_records_has_no_recall() -> None:
    found = quality.confusion(torch.tensor([[3.0], [-1.0], [2.0]]), torch.tensor([1, 1, 1]))
    assert found.counts == ((0, 0), (1, 2))
    assert found.recall(0, 0.95) is None
    assert found.precision(0, 0.95) is not None


@pytest.mark.parametrize(
    ("counts", "fault"),
    [
        (((40, 10), (10, 40)), ""),
        (((0, 30), (0, 70)), "one class"),
        (((10, 20), (40, 30)), "no more accurate"),
        (((0, 0), (0, 9)), ""),  # one class is all that there is
    ],
)
def test_answers_show_where_nothing_was_learnt(
    counts: tuple[tuple[int, ...], ...], fault: str
) -> None:
    assert fault in quality.Confusion(counts).fault()
    assert bool(fault) == bool(quality.Confusion(counts).fault())


def test_of_a_model_that_knows_its_odds_each_bin_is_right_as_often_as_it_says() -> None:
    draw = torch.Generator().manual_seed(1)
    logits = 2 * torch.randn(40000, 3, generator=draw, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=draw)[:, 0]
    bins = quality.calibration(logits, labels)
    assert sum(each.records for each in bins) == 40000
    for each in bins:
        error = (each.confidence * (1 - each.confidence) / each.records) ** 0.5
        assert abs(each.accuracy - each.confidence) < 4 * error + 1e-9
