"""Recall and precision from noisy counts: intervals that hold, and are exact without noise."""

from fractions import Fraction

import numpy as np
import pytest

from adversaries.statistics.intervals import clopper_pearson
from fedsim.privacy import discrete_laplace
from fedsim.reports import model_quality


def test_where_the_noise_is_nothing_they_are_clopper_and_pearsons():
    """At half of the error, since the other half is the noise's."""
    first, second = model_quality.of_classes([[80, 20], [5, 95]], ["a", "b"], 1e-3, 0.9)
    assert first.recall is not None
    assert second.precision is not None
    exact = clopper_pearson(80, 100, 0.95)
    assert first.recall.value == 0.8
    assert first.recall.interval == pytest.approx((exact.low, exact.high))
    exact = clopper_pearson(95, 115, 0.95)
    assert second.precision.interval == pytest.approx((exact.low, exact.high))


def test_a_class_that_the_noise_swamps_has_all_of_the_interval():
    for each in model_quality.of_classes([[1, -3], [-2, 2]], ["a", "b"], 20.0, 0.95):
        for share in (each.recall, each.precision):
            assert share is not None
            assert share.interval is not None
            assert share.interval[0] == 0
            assert share.interval[1] > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_they_hold_the_truth_as_often_as_they_say(epsilon):
    """Of 1,000 intervals at 80 % that are never worse, fewer than 76 % hold once in 1,000 times."""
    draw = np.random.default_rng(4)
    law = np.array([[0.8, 0.15, 0.05], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]])
    held = {"recall": 0, "precision": 0}
    of_class = np.array([40, 60, 25])
    precision = 40 * 0.8 / (of_class @ law)[0]
    for _ in range(1000):
        counts = [draw.multinomial(n, row).tolist() for n, row in zip(of_class, law, strict=True)]
        scale = 1 / Fraction(epsilon)
        noisy = [[count + discrete_laplace.draw(scale) for count in row] for row in counts]
        first, *_ = model_quality.of_classes(noisy, list("abc"), 1 / epsilon, 0.8)
        for name, truth in (("recall", 0.8), ("precision", precision)):
            low, high = getattr(first, name).interval
            held[name] += low <= truth <= high
    assert min(held.values()) >= 760
