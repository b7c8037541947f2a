"""Intervals are those that scipy and exact enumeration give."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from adversaries.statistics.intervals import clopper_pearson, mean_interval


@given(st.integers(0, 60), st.integers(0, 60), st.floats(0.01, 0.9999))
def test_clopper_pearson_is_scipys_exact_interval(successes, failures, confidence):
    trials = successes + failures
    found = clopper_pearson(successes, trials, confidence)
    if trials == 0:
        assert (found.low, found.high) == (0, 1)
        return
    exact = stats.binomtest(successes, trials).proportion_ci(confidence, method="exact")
    # scipy's own root is found to 2e-12 only.
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high), rel=1e-9, abs=4e-12)


@pytest.mark.parametrize("n", [2, 3, 30])
def test_the_interval_of_a_mean_is_students(n):
    values = np.random.default_rng(n).normal(1.0, 2.0, n)
    found = mean_interval(values, 0.9)
    expected = stats.t.interval(0.9, n - 1, loc=values.mean(), scale=stats.sem(values))
    assert (found.low, found.high) == pytest.approx(expected, rel=1e-9)
