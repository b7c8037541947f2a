"""What a task is judged by, and whether a model has learnt anything."""

import math

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from fedsim.learning.training.criterion import (
    Measured,
    area_interval,
    criterion,
    judge,
    mean_of_shares,
)


@pytest.mark.parametrize(
    ("of_class", "name"),
    [
        ((500, 500), "AUC"),
        ((20, 980), "AUC"),
        ((100,) * 10, "accuracy"),
        ((60, 30, 10), "balanced accuracy"),
        ((98, 1, 1), "balanced accuracy"),
        ((0, 9), "accuracy"),
        ((), "accuracy"),
    ],
)
def test_two_and_uneven_classes_are_not_judged_by_the_accuracy(of_class, name):
    assert criterion(of_class) == name


def test_a_model_that_ranks_has_learnt_and_a_constant_answer_never_has():
    """An AUC of .645 is learnt where the accuracy equals the majority; .5 is not."""
    uneven = Measured("classification", 1000, 0.82, 0.82, of_class=(820, 180), area_under_curve=0)
    for area, learnt in ((0.645, True), (0.5, False), (0.51, False), (0.3, False)):
        judged = judge(Measured(**(vars(uneven) | {"area_under_curve": area})))
        assert (judged.name, judged.constant) == ("AUC", 0.5)
        assert judged.has_learnt == learnt
    three = Measured(
        *("classification", 1000, 0.9, 0.9),
        of_class=(900, 60, 40),
        recalls=(1.0, 0.0, 0.0),
        balanced_accuracy=1 / 3,
    )
    assert judge(three).constant == 1 / 3
    assert not judge(three).has_learnt
    some = Measured(**(vars(three) | {"recalls": (0.8, 0.5, 0.3), "balanced_accuracy": 1.6 / 3}))
    assert judge(some).has_learnt
    even = Measured("classification", 1000, 0.52, 0.5, of_class=(250,) * 4)
    assert judge(even).name == "accuracy"
    assert not judge(even).has_learnt  # 0.489 to 0.551
    assert judge(Measured(**(vars(even) | {"accuracy": 0.55}))).has_learnt


@pytest.mark.parametrize("task", ["regression", "huber"])
def test_a_regression_is_judged_by_its_error(task):
    judged = judge(Measured(task, 100, 0.9, 0.8, interval=(0.85, 0.95)))
    assert (judged.name, judged.rises) == ("mean absolute error", False)
    assert (judged.value, judged.constant) == pytest.approx((0.1, 0.2))
    assert judged.has_learnt
    assert not judge(Measured(task, 100, 0.9, 0.8, interval=(0.79, 0.95))).has_learnt


def test_next_tokens_are_judged_by_the_perplexity_and_nan_has_learnt_nothing():
    text = Measured("next-token", 9, 0.5, 0.1, 2.0, baseline_loss=3.0, interval=(1.9, 2.1))
    assert judge(text).value == pytest.approx(math.exp(2))
    assert judge(text).has_learnt
    for loss, interval in ((math.nan, None), (2.0, (1.0, 3.1)), (1000.0, None)):
        assert not judge(Measured(**(vars(text) | {"loss": loss, "interval": interval}))).has_learnt
    diverged = Measured("classification", 9, math.nan, 0.5, of_class=(5, 4))
    assert not judge(diverged).has_learnt


def test_an_area_of_guesses_is_refused_as_often_as_by_the_rank_sum_test():
    """The interval excludes 0.5 exactly where the test's p-value is below 5 %."""
    draw = np.random.default_rng(0)
    decided = 0
    for shift in np.linspace(0, 0.7, 60):
        ones, zeros = draw.normal(shift, 1, 40), draw.normal(0, 1, 160)
        labels, scores = np.repeat([1, 0], [40, 160]), np.concatenate([ones, zeros])
        between = area_interval(metrics.roc_auc_score(labels, scores), 160, 40)
        test = stats.mannwhitneyu(ones, zeros, use_continuity=False, method="asymptotic")
        assert (between.low > 0.5 or between.high < 0.5) == (test.pvalue < 0.05)
        decided += test.pvalue < 0.05
    assert 20 < decided < 58  # the shifts lie on both sides
    for area in (0.0, 1.0):
        low, high = area_interval(area, 5, 3).ends
        assert 0 <= low <= area <= high <= 1
        assert high - low > 0.2


def test_the_interval_of_a_mean_of_shares_covers_it():
    """Of 2,000 samples, 95 % are covered; fewer than 93 % would be 4 standard errors too few."""
    draw = np.random.default_rng(1)
    shares, counts = np.array([0.9, 0.3, 0.05]), np.array([400, 60, 30])
    covered = 0
    for _ in range(2000):
        of = draw.binomial(counts, shares) / counts
        low, high = mean_of_shares(list(zip(of.tolist(), counts.tolist(), strict=True))).ends
        covered += low <= shares.mean() <= high
    assert covered >= 0.93 * 2000
