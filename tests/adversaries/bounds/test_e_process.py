"""Values of e-processes that hold for all hypotheses together."""

import itertools
import math

import numpy as np
import pytest

from adversaries.bounds.e_process import closed


def test_closing_is_the_least_average_over_all_groups():
    values = np.random.default_rng(2).normal(0, 4, 6)
    for size in range(1, 7):
        among = values[:size]
        groups = [
            group
            for count in range(1, size + 1)
            for group in itertools.combinations(range(size), count)
        ]
        expected = [
            min(np.log(np.exp(among[list(g)]).mean()) for g in groups if one in g)
            for one in range(size)
        ]
        np.testing.assert_allclose(closed(among), expected, rtol=1e-12, atol=1e-12)


def test_averages_accuse_sooner_than_shares_of_the_significance():
    log_e = np.array([9.0, 9.5, 12.0])
    alone = log_e - math.log(3)  # what each has left where a third of alpha is its own
    assert (closed(log_e) >= alone).all()
    assert closed(log_e)[0] > alone[0] + 0.9
    # Beside those that show nothing nobody gains.
    assert closed(np.array([0.0, 0.0, 12.0]))[2] == pytest.approx(12 - math.log(3), abs=1e-4)
