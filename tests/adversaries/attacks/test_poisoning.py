"""A poison lies where the data are not; what a group proves is divided by group privacy."""

import numpy as np
import pytest

from adversaries.attacks.poisoning import (
    clipbkd_point,
    least_direction,
    least_liked,
    logit_gain,
)
from adversaries.errors import InputError
from adversaries.statistics.intervals import EpsilonBound


def _features(records, size):
    generator = np.random.default_rng(records)
    return 3 + generator.standard_normal((records, size)) * np.linspace(1, 5, size)


def _bound(tpr, fpr, delta):
    details = {"true_positive_rate_low": tpr, "false_positive_rate_high": fpr}
    return EpsilonBound(0.0, delta, 0.95, "limits", "nothing", details)


def test_the_direction_is_the_last_right_singular_vector_of_the_uncentred_features():
    features, towards = _features(40, 6), np.ones(6)
    found = least_direction(features, towards)
    last = np.linalg.svd(features)[2][-1]
    np.testing.assert_allclose(found, np.sign(last @ towards) * last, atol=1e-9)
    # Of centred data it would be another one.
    centred = np.linalg.svd(features - features.mean(axis=0))[2][-1]
    assert abs(found @ centred) < 0.99


def test_no_direction_has_a_smaller_product_with_the_records():
    features = _features(40, 6)
    found = least_direction(features, np.ones(6))
    others = np.random.default_rng(0).standard_normal((1000, 6))
    others /= np.linalg.norm(others, axis=1, keepdims=True)
    least = np.linalg.norm(features @ found)
    assert (np.linalg.norm(features @ others.T, axis=0) >= least).all()


def test_with_fewer_records_than_features_no_square_of_the_features_is_decomposed(monkeypatch):
    """Of images d x d is millions of numbers, and the directions that no record uses are many."""
    features, towards = _features(12, 300), np.random.default_rng(0).standard_normal(300)
    features[5] = features[4]  # rank 11
    _, _, vectors = np.linalg.svd(features)
    expected = vectors[11:].T @ (vectors[11:] @ towards)
    monkeypatch.delattr(np.linalg, "eigh")
    found = least_direction(features, towards)
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected), atol=1e-12)


@pytest.mark.parametrize(("records", "rank"), [(4, 4), (40, 5)])
def test_of_many_directions_that_no_record_uses_the_nearest_is_taken(records, rank):
    turned = np.linalg.qr(np.random.default_rng(0).standard_normal((8, 8)))[0]
    features = np.pad(_features(records, 5), ((0, 0), (0, 3))) @ turned
    towards = np.arange(1.0, 9.0)
    found = least_direction(features, towards)
    np.testing.assert_allclose(features @ found, 0, atol=1e-9)
    assert np.linalg.norm(found) == pytest.approx(1)
    row_space = np.linalg.svd(features)[2][:rank]
    expected = towards - row_space.T @ (row_space @ towards)
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected), atol=1e-9)


def test_a_wish_that_the_records_all_but_span_leaves_none_of_its_rounding():
    features = _features(4, 300)
    off = np.linalg.svd(features)[2][-1]
    found = least_direction(features, features.sum(axis=0) + 1e-6 * off)
    assert np.abs(features @ found).max() < 1e-12 * np.linalg.norm(features)
    assert found @ off == pytest.approx(1, abs=1e-3)


def test_the_point_is_as_long_as_a_record_is_on_average():
    features = _features(30, 5)
    point = clipbkd_point(features, np.ones(5))
    assert np.linalg.norm(point) == pytest.approx(np.linalg.norm(features, axis=1).mean())


@pytest.mark.parametrize("features", [np.zeros((0, 3)), np.zeros(3)])
def test_without_records_there_is_no_direction(features):
    with pytest.raises(InputError, match=r"give \[records, features\]"):
        least_direction(features, np.ones(3))


def test_the_class_that_is_liked_least_has_the_largest_loss():
    logits = np.array([0.3, -2.0, 1.0])
    assert least_liked(logits) == 1
    assert least_liked(logits, but=1) == 0
    # One logit is the log-odds of class 1.
    assert [least_liked([odds]) for odds in (2.0, -2.0)] == [0, 1]
    assert least_liked([2.0], but=0) == 1


def test_the_gain_is_that_of_the_poisons_class_above_what_nothing_gets():
    logits, baseline = np.array([[1.0, 5.0], [2.0, 2.0]]), np.array([[0.0, 4.5], [0.0, 3.0]])
    np.testing.assert_allclose(logit_gain(logits, baseline, 1), [0.5, -1.0])
    one, nothing = np.array([[3.0]]), np.array([[1.0]])
    assert (logit_gain(one, nothing, 1)[0], logit_gain(one, nothing, 0)[0]) == (2.0, -2.0)
