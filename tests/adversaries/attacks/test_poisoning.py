"""A poison lies where the data are not; what a group proves is divided by group privacy."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from adversaries.attacks.poisoning import (
    clipbkd_point,
    group_delta,
    least_direction,
    least_liked,
    logit_gain,
    per_record,
)
from adversaries.bounds.lower_bounds import clopper_pearson_bound
from adversaries.errors import InputError
from adversaries.statistics import gaussian
from adversaries.statistics.intervals import EpsilonBound


def _features(records: int, size: int) -> np.ndarray:
    generator = np.random.default_rng(records)
    return 3 + generator.standard_normal((records, size)) * np.linspace(1, 5, size)


def _bound(tpr: float, fpr: float, delta: float) -> EpsilonBound:
    details = {"true_positive_rate_low": tpr, "false_positive_rate_high": fpr}
    return EpsilonBound(0.0, delta, 0.95, "limits", "nothing", details)


def test_the_direction_is_the_last_right_singular_vector_of_the_uncentred_features() -> None:
    features, towards = _features(40, 6), np.ones(6)
    found = least_direction(features, towards)
    last = np.linalg.svd(features)[2][-1]
    np.testing.assert_allclose(found, np.sign(last @ towards) * last, atol=1e-9)
    # Of centred data it would be another one.
    centred = np.linalg.svd(features - features.mean(axis=0))[2][-1]
    assert abs(found @ centred) < 0.99


def test_no_direction_has_a_smaller_product_with_the_records() -> None:
    features = _features(40, 6)
    found = least_direction(features, np.ones(6))
    others = np.random.default_rng(0).standard_normal((1000, 6))
    others /= np.linalg.norm(others, axis=1, keepdims=True)
    least = np.linalg.norm(features @ found)
    assert (np.linalg.norm(features @ others.T, axis=0) >= least).all()


def test_with_fewer_records_than_features_no_square_of_the_features_is_decomposed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of images d x d is millions of numbers, and the directions that no record uses are many."""
    features, towards = _features(12, 300), np.random.default_rng(0).standard_normal(300)
    features[5] = features[4]  # rank 11
    _, _, vectors = np.linalg.svd(features)
    expected = vectors[11:].T @ (vectors[11:] @ towards)
    monkeypatch.delattr(np.linalg, "eigh")
    found = least_direction(features, towards)
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected), atol=1e-12)


@pytest.mark.parametrize(("records", "rank"), [(4, 4), (40, 5)])
def test_of_many_directions_that_no_record_uses_the_nearest_is_taken(
    records: int, rank: int
) -> None:
    turned = np.linalg.qr(np.random.default_rng(0).standard_normal((8, 8)))[0]
    features = np.pad(_features(records, 5), ((0, 0), (0, 3))) @ turned
    towards = np.arange(1.0, 9.0)
    found = least_direction(features, towards)
    np.testing.assert_allclose(features @ found, 0, atol=1e-9)
    assert np.linalg.norm(found) == pytest.approx(1)
    row_space = np.linalg.svd(features)[2][:rank]
    expected = towards - row_space.T @ (row_space @ towards)
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected), atol=1e-9)


def test_a_wish_that_the_records_all_but_span_leaves_none_of_its_rounding() -> None:
    features = _features(4, 300)
    off = np.linalg.svd(features)[2][-1]
    found = least_direction(features, features.sum(axis=0) + 1e-6 * off)
    assert np.abs(features @ found).max() < 1e-12 * np.linalg.norm(features)
    assert found @ off == pytest.approx(1, abs=1e-3)


def test_the_point_is_as_long_as_a_record_is_on_average() -> None:
    features = _features(30, 5)
    point = clipbkd_point(features, np.ones(5))
    assert np.linalg.norm(point) == pytest.approx(np.linalg.norm(features, axis=1).mean())


@pytest.mark.parametrize("features", [np.zeros((0, 3)), np.zeros(3)])
def test_without_records_there_is_no_direction(features: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"give \[records, features\]"):
        least_direction(features, np.ones(3))


def test_the_class_that_is_liked_least_has_the_largest_loss() -> None:
    logits = np.array([0.3, -2.0, 1.0])
    assert least_liked(logits) == 1
    assert least_liked(logits, but=1) == 0
    # One logit is the log-odds of class 1.
    assert [least_liked([odds]) for odds in (2.0, -2.0)] == [0, 1]
    assert least_liked([2.0], but=0) == 1


def test_the_gain_is_that_of_the_poisons_class_above_what_nothing_gets() -> None:
    logits, baseline = np.array([[1.0, 5.0], [2.0, 2.0]]), np.array([[0.0, 4.5], [0.0, 3.0]])
    np.testing.assert_allclose(logit_gain(logits, baseline, 1), [0.5, -1.0])
    one, nothing = np.array([[3.0]]), np.array([[1.0]])
    assert (logit_gain(one, nothing, 1)[0], logit_gain(one, nothing, 0)[0]) == (2.0, -2.0)


def test_without_delta_the_bound_of_a_group_is_divided_by_its_size() -> None:
    worlds = np.arange(200) % 2 == 0
    scores = np.where(worlds, 1.0, -1.0)
    scores[:20] *= -1
    bound = clopper_pearson_bound(worlds, scores, 0.0, 0.99)
    assert bound.epsilon > 1
    for records in (1, 2, 8):
        assert per_record(bound, records).epsilon == pytest.approx(bound.epsilon / records)


@pytest.mark.parametrize("rates", [(0.9, 0.2), (0.3, 0.01), (0.999, 0.6)])
@pytest.mark.parametrize("records", [1, 3])
def test_the_bound_is_where_group_privacy_begins_to_allow_the_rates(
    rates: tuple[float, float], records: int
) -> None:
    (tpr, fpr), delta = rates, 1e-3

    def allowed(epsilon: float) -> bool:
        slack = sum(math.exp(i * epsilon) * delta for i in range(records))
        grown = math.exp(records * epsilon)
        return tpr <= grown * fpr + slack and 1 - fpr <= grown * (1 - tpr) + slack

    found = per_record(_bound(tpr, fpr, delta), records).epsilon
    assert found > 0
    assert not allowed(found - 1e-6)
    assert allowed(found + 1e-6)


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("records", [1, 2, 4])
def test_the_true_rates_of_a_gaussian_group_prove_no_more_than_is_true_of_one(
    mu: float, records: int
) -> None:
    true, delta = gaussian.epsilon(mu, 1e-3), 1e-3
    proven = [
        per_record(_bound(norm.sf(t - records * mu), norm.sf(t), delta), records).epsilon
        for t in np.linspace(-4, 4 + records * mu, 41)
    ]
    assert 0 < max(proven) <= true


def test_rates_that_chance_allows_prove_nothing() -> None:
    assert per_record(_bound(0.3, 0.4, 1e-5), 4).epsilon == 0
    assert per_record(_bound(0.0, 1.0, 0.0), 1).epsilon == 0


def test_certainty_proves_no_finite_number_too_much() -> None:
    found = per_record(_bound(1.0, 0.0, 0.0), 2).epsilon
    assert found > 100


def test_the_delta_of_a_group_is_that_of_the_textbook() -> None:
    epsilon, delta = 0.7, 1e-4
    textbook = delta * (math.exp(3 * epsilon) - 1) / (math.exp(epsilon) - 1)
    assert group_delta(epsilon, delta, 3) == pytest.approx(textbook)
    assert group_delta(0.0, delta, 3) == pytest.approx(3 * delta)


def test_only_bounds_of_counted_rates_can_be_divided() -> None:
    other = EpsilonBound(1.0, 1e-5, 0.95, "normal log-odds", "normality")
    with pytest.raises(InputError, match="no limits of the true"):
        per_record(other, 2)
    with pytest.raises(InputError, match="give at least 1"):
        per_record(_bound(0.5, 0.1, 0.0), 0)


def test_a_bound_that_was_refused_is_passed_on() -> None:
    refused = replace(_bound(0.9, 0.1, 1e-5), reason="infinite log-odds")
    assert per_record(refused, 2) is refused
    without = replace(refused, details={})
    assert per_record(without, 2) is without
    with pytest.raises(InputError, match="give at least 1"):
        per_record(refused, 0)
