"""Rank correlations agree with SciPy, and their intervals cover the truth as often as they say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import binom, spearmanr

from adversaries.errors import InputError
from adversaries.neighbours.rank_correlation import (
    compare,
    places,
    reach,
    weighted_rhos,
)


def rng(seed=0):
    return np.random.default_rng(seed)


def compared(heuristic, truth, resamples=100):
    return compare({"it": heuristic}, truth, 0.95, rng(), resamples)["it"]


few_values = hnp.arrays(np.float64, 12, elements=st.integers(0, 4).map(float))


@given(few_values, few_values)
def test_rho_is_scipys_with_and_without_ties(heuristic, truth):
    if np.ptp(heuristic) == 0 or np.ptp(truth) == 0:
        with pytest.raises(InputError, match="the same value everywhere"):
            compared(heuristic, truth, 2)
        return
    expected = spearmanr(heuristic, truth).statistic
    assert compared(heuristic, truth, 2).rho == pytest.approx(expected)
    pairs = compared(heuristic.reshape(3, 4), truth.reshape(3, 4), 2)
    assert pairs.rho == pytest.approx(expected)


def test_an_order_that_no_sample_has_is_not_known():
    """One value in twelve differs: the two samples drawn here miss it."""
    heuristic, truth = np.eye(12)[11], np.array([0.0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1])
    heuristics = {"it": heuristic.reshape(3, 4), "other": truth.reshape(3, 4)}
    found = compare(heuristics, truth.reshape(3, 4), 0.95, rng(4), 2)
    assert (found["it"].low, found["it"].high) == (-1, 1)
    assert found["other"].low == pytest.approx(1)


def test_weights_stand_for_repeated_values():
    heuristic, truth = rng(1).integers(0, 9, 50).astype(float), rng(2).normal(size=50)
    weights = rng(3).integers(0, 4, 50)
    groups, true_groups = places(heuristic, truth)
    found = weighted_rhos({"it": groups}, true_groups, weights.astype(float))
    expected = spearmanr(np.repeat(heuristic, weights), np.repeat(truth, weights)).statistic
    np.testing.assert_allclose(found, [expected], rtol=1e-12)


@pytest.mark.parametrize("correlation", [0.0, 0.7])
def test_intervals_of_records_cover_the_truth_at_their_level(correlation):
    """Normal pairs of correlation r have Spearman's rho 6/pi asin(r/2) (Kendall and Gibbons)."""
    expected = 6 / np.pi * np.arcsin(correlation / 2)
    simulations, covered, widths = 150, 0, []
    for seed in range(simulations):
        x, e = rng(seed).normal(size=(2, 80))
        y = correlation * x + np.sqrt(1 - correlation**2) * e
        found = compare({"it": x}, y, 0.9, rng(seed), 120)["it"]
        covered += found.low <= expected <= found.high
        widths.append(found.high - found.low)
    low, high = binom.ppf([1e-4, 1 - 1e-4], simulations, 0.9)
    assert low <= covered <= high
    assert np.mean(widths) < 0.45  # of an asymptotic 0.37 at rho 0


def test_intervals_of_pairs_know_that_pairs_share_records():
    """Both matrices depend on their row and column alone: 30 records each, not 900 pairs."""
    simulations, covered, naive = 80, 0, 0
    for seed in range(simulations):
        rows, columns = rng(seed).normal(size=(2, 2, 30))
        heuristic, truth = (rows[i][:, None] + columns[i][None, :] for i in range(2))
        found = compare({"it": heuristic}, truth, 0.9, rng(seed), 100)["it"]
        covered += found.low <= 0 <= found.high
        naive += abs(found.rho) <= 1.645 / np.sqrt(heuristic.size)
    assert covered >= binom.ppf(1e-4, simulations, 0.9)
    assert naive < simulations / 2  # what intervals of independent pairs would have covered


def test_only_the_order_counts_and_the_best_comes_first():
    x, e = rng(5).normal(size=(2, 60))
    found = compare({"worse": x + 3 * e, "a": x, "b": np.exp(x)}, x + e, 0.95, rng(), 100)
    assert found["a"] == found["b"]
    assert list(found)[:1] == [max(found, key=lambda name: found[name].rho)]
    rhos = [each.rho for each in found.values()]
    assert rhos == sorted(rhos, reverse=True)


def test_a_perfect_order_is_certain():
    x = rng(7).normal(size=(6, 7))
    found = compared(-x, x)
    assert (found.rho, found.low, found.high) == pytest.approx((-1, -1, -1))


def test_reach_is_the_share_of_the_largest_sensitivity():
    assert reach(1.5, 2.0) == 0.75
    assert reach(2.0 * (1 + 1e-7), 2.0) == 1.0  # rounding
    with pytest.raises(InputError, match="more than the largest value"):
        reach(2.1, 2.0)
    with pytest.raises(InputError, match="no record has a gradient"):
        reach(0.0, 0.0)


@pytest.mark.parametrize(
    ("heuristic", "truth", "message"),
    [
        ([1, 2], [1, 2], "three records"),
        ([[1, 2], [3, 4], [5, 6]], [[1, 2], [3, 4], [5, 7]], "three records"),
        ([1, 2, 3], [1, 2, 3, 4], "has shape"),
        ([1, 2, np.nan], [1, 2, 3], "not finite"),
        ([1, 2, 3], [4, 4, 4], "the truth has the same value"),
    ],
)
def test_undefined_correlations_are_refused(heuristic, truth, message):
    with pytest.raises(InputError, match=message):
        compared(np.array(heuristic, float), np.array(truth, float))


def test_an_impossible_confidence_is_refused():
    with pytest.raises(InputError, match="between 0 and 1"):
        compare({"it": [1, 2, 3]}, [1, 2, 3], 1.0, rng())
    with pytest.raises(InputError, match="no heuristic"):
        compare({}, [1, 2, 3], 0.9, rng())
