"""Roots equal SciPy's, to the bit."""

import math

import pytest
import scipy.optimize

from adversaries.statistics.roots import find_root

CASES = [
    (lambda x: x**3 - 2, 0.0, 2.0, {}),
    (lambda x: math.exp(x) - 1e-7, -40.0, 3.0, {"xtol": 1e-14, "rtol": 1e-14}),
    (lambda x: math.atan(50 * (x - 0.3)), -9.0, 4.0, {"xtol": 1e-9}),
    (lambda x: -1.0 if x < 1 / 3 else 1.0, 0.0, 1.0, {"xtol": 1e-12}),
    (lambda x: math.erfc(x) - 1e-30, 0.0, 20.0, {"xtol": 1e-13}),
    (lambda x: (x**3 - 2) * 1e-120, 0.0, 2.0, {}),  # products of its values underflow
    (lambda x: x, 0.0, 1.0, {}),
    (lambda x: x - 1, 0.0, 1.0, {}),
]


@pytest.mark.parametrize(("function", "low", "high", "tolerance"), CASES)
def test_a_root_is_that_of_scipy(function, low, high, tolerance):
    expected = scipy.optimize.brentq(function, low, high, **tolerance)
    assert find_root(function, low, high, **tolerance) == expected
    assert find_root(function, high, low, **tolerance) == scipy.optimize.brentq(
        function, high, low, **tolerance
    )


def test_an_interval_without_a_change_of_sign_is_refused():
    with pytest.raises(ValueError, match="same sign"):
        find_root(lambda x: x * x + 1, -1.0, 1.0)
    with pytest.raises(ValueError, match="not a number"):
        find_root(lambda x: math.nan if x > 0 else -1.0, -1.0, 1.0)
    with pytest.raises(RuntimeError, match="no root after 100"):
        find_root(lambda x: -1.0 if x < 0.1 else 1.0, 0.0, 1e300, xtol=1e-300)
