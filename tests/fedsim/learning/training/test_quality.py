"""Measures of a classifier agree with scikit-learn's."""

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn import metrics

from fedsim.learning.training import quality
from fedsim.learning.training.quality import majority_share


@pytest.mark.parametrize("classes", [2, 4])
def test_they_are_those_of_scikit_learn(classes):
    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(classes, (200,), generator=draw)
    logits = torch.randn(3, 200, classes, dtype=torch.float64, generator=draw)
    logits += torch.eye(classes)[labels]
    logits[0, :9] = 0.0  # ties
    found = quality.of_models(logits, labels)
    assert set(found) == {*RATES, "confusions"}
    for trial, outputs in enumerate(logits):
        guesses, likely = outputs.argmax(-1), outputs.softmax(-1).numpy().round(12)
        counts = metrics.confusion_matrix(labels, guesses)
        np.testing.assert_array_equal(found["confusions"][trial], counts)
        balanced = metrics.balanced_accuracy_score(labels, guesses)
        assert float(found["balanced_accuracies"][trial]) == pytest.approx(balanced)
        scores = likely[:, 1] if classes == 2 else likely
        area = metrics.roc_auc_score(labels, scores, multi_class="ovr")
        assert float(found["areas_under_curve"][trial]) == pytest.approx(area)
    assert majority_share(labels) == int(labels.bincount().max()) / 200


RATES = "balanced_accuracies", "areas_under_curve"


def test_one_logit_has_the_area_of_two_and_one_class_has_none():
    labels = torch.tensor([0, 0, 1, 1])
    logits = torch.tensor([[[-2.0], [0.5], [0.1], [3.0]]])
    both = torch.cat([torch.zeros_like(logits), logits], -1)
    for outputs in (logits, both):
        area = quality.areas_under_curve(outputs, labels)
        assert area is not None
        assert float(area) == 0.75
    assert quality.areas_under_curve(logits, torch.zeros_like(labels)) is None


def test_a_model_that_says_the_same_of_every_record_tells_no_classes_apart():
    """Whatever single precision makes of log p and log(1 - p)."""
    labels = torch.tensor([0, 1, 1, 2] * 50)
    for sure in (0.3, 3.7, 30.0):
        for classes, some in ((2, labels.clamp(max=1)), (3, labels)):
            logits = torch.full((1, 200, classes), sure) * torch.arange(classes)
            area = quality.areas_under_curve(logits, some)
            assert area is not None
            assert float(area) == 0.5


def test_a_class_without_records_counts_in_no_mean():
    draw = torch.Generator().manual_seed(3)
    labels = torch.tensor([0, 2] * 20)
    logits = torch.randn(2, 40, 3, generator=draw)
    recalls = [(logits.argmax(-1) == labels)[:, labels == each].double().mean(1) for each in (0, 2)]
    counts = quality.confusions(logits, labels)
    assert torch.equal(quality.balanced_accuracies(counts), torch.stack(recalls).mean(0))
    area = quality.areas_under_curve(logits, labels)
    assert area is not None
    assert torch.isfinite(area).all()


def test_models_that_diverged_leave_numbers():
    found = quality.of_models(torch.full((1, 4, 3), torch.nan), torch.tensor([0, 1, 2, 0]))
    assert all(torch.isfinite(values).all() for values in found.values())


def test_recall_and_precision_are_counted_and_have_exact_intervals():
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


def test_one_logit_is_two_classes_and_a_class_without_records_has_no_recall():
    found = quality.confusion(torch.tensor([[3.0], [-1.0], [2.0]]), torch.tensor([1, 1, 1]))
    assert found.counts == ((0, 0), (1, 2))
    assert found.recall(0, 0.95) is None
    assert found.precision(0, 0.95) is not None


@pytest.mark.parametrize(
    ("counts", "one"),
    [
        (((40, 10), (10, 40)), False),
        (((0, 30), (0, 70)), True),
        (((0, 0), (0, 9)), False),  # one class is all that there is
        ((), False),
    ],
)
def test_answers_of_one_class_are_noticed(counts, one):
    assert quality.answers_one_class(counts) == one
