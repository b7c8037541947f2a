"""What is said of each class, over the models of several trials."""

import numpy as np
import pytest
from scipy import stats

from fedsim.audits.results.numbers import Proportion
from fedsim.audits.run import empirical


def test_shares_are_of_all_trials_and_intervals_over_them():
    confusions = np.array([[[8.0, 2], [3, 7]], [[6, 4], [1, 9]], [[7, 3], [0, 10]]])
    calibrations = np.array([[[0.0, 0, 0], [20, 15, 15]]] * 3)
    found = empirical.over_trials(confusions, calibrations, ["a", "b"], 0.9)
    recall = found.classes[0].recall
    assert recall is not None
    assert recall.interval is not None
    assert recall.value == pytest.approx(0.7)
    reach = stats.t.ppf(0.95, 2) * stats.sem([0.8, 0.6, 0.7])
    assert recall.interval == pytest.approx((0.7 - reach, 0.7 + reach))
    precision = found.classes[1].precision
    assert precision is not None
    assert precision.value == pytest.approx(26 / 35)  # of all answers together
    assert found.confusion == [[7, 3], [pytest.approx(4 / 3), pytest.approx(26 / 3)]]
    (sure,) = found.calibration  # a bin without records is left out
    assert (sure.records, sure.confidence) == (20, 0.75)
    assert sure.accuracy == Proportion(0.75, None)  # nothing varies
    assert found.least_recall == ("a", pytest.approx(0.7))


def test_a_class_that_is_never_answered_has_no_precision():
    found = empirical.over_trials(
        np.array([[[4.0, 0], [5, 0]]]), np.zeros((1, 10, 3)), ["0", "1"], 0.9
    )
    assert found.classes[1].precision is None
    assert found.classes[1].recall == Proportion(0.0, None)


@pytest.mark.slow
def test_the_interval_of_a_precision_covers_as_often_as_it_says():
    """A binomial count of 2,000 intervals at 90 % is off by 3 % once in 100,000 times."""
    draw = np.random.default_rng(5)
    held = 0
    for _ in range(2000):
        answers = draw.poisson(40, 12).astype(float)
        right = draw.binomial(answers.astype(int), 0.7).astype(float)
        found = empirical.proportion(right, answers, 0.9)
        assert found is not None
        assert found.interval is not None
        held += found.interval[0] <= 0.7 <= found.interval[1]
    assert held / 2000 == pytest.approx(0.9, abs=0.03)
