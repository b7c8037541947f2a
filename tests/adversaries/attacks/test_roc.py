"""The curve is scikit-learn's, and its intervals know that the pairs of a model are dependent."""

import numpy as np
import pytest
from scipy.stats import binom, norm
from sklearn.metrics import roc_auc_score, roc_curve

from adversaries.attacks.roc import advantage, curve, independent_area, performance
from adversaries.errors import InputError
from adversaries.statistics.intervals import clopper_pearson


def game(models, records, shift, common, seed):
    """Scores N(shift member, 1), and a part that all records of a model share."""
    rng = np.random.default_rng(seed)
    members = rng.random((models, records)) < 0.5
    scores = rng.normal(shift * members, 1) + common * rng.normal(0, 1, (models, 1))
    return scores, members


@pytest.mark.parametrize("ties", [False, True])
def test_the_curve_and_its_area_are_scikit_learns(ties):
    scores, members = game(20, 30, 1, 0, 0)
    scores = np.round(scores) if ties else scores
    found = curve(scores, members)
    false, true, thresholds = roc_curve(members.ravel(), scores.ravel(), drop_intermediate=False)
    np.testing.assert_allclose(found.false_positive, false)
    np.testing.assert_allclose(found.true_positive, true)
    np.testing.assert_array_equal(found.thresholds, thresholds)
    assert found.area == pytest.approx(roc_auc_score(members.ravel(), scores.ravel()))


def test_true_positives_are_read_where_false_ones_are_no_more_than_asked():
    scores = np.array([[4.0, 3.0, 2.0, 1.0, 0.0]])
    found = curve(scores, np.array([[True, False, True, True, False]]))
    assert found.true_positive_at(0.49) == pytest.approx(1 / 3)
    assert found.true_positive_at(0.5) == pytest.approx(1)
    assert found.true_positive_at(0.0) == pytest.approx(1 / 3)


def test_estimates_are_those_of_a_known_game():
    scores, members = game(200, 50, 1, 0, 1)
    found = performance(scores, members, 0.999, [0.01, 0.1], 0.5)
    truths = {0.01: norm.cdf(norm.ppf(0.01) + 1), 0.1: norm.cdf(norm.ppf(0.1) + 1)}
    for rate, truth in truths.items():
        interval = found.true_positive[rate].interval
        assert interval is not None
        assert interval.low < truth < interval.high
        assert interval.high - interval.low < 0.08
    assert found.area.interval is not None
    assert found.area.interval.low < norm.cdf(np.sqrt(0.5)) < found.area.interval.high
    assert found.advantage.interval is not None
    low, high = found.advantage.interval.low, found.advantage.interval.high
    assert low < 2 * norm.cdf(0.5) - 1 < high


def test_intervals_are_wider_where_the_pairs_of_a_model_go_together():
    """Some models betray all of their members, and others none of them."""
    widths = []
    for common in (0.0, 1.0):
        scores, members = game(40, 100, 1, 0, 3)
        scores += common * members * np.random.default_rng(0).choice([-1, 1], (40, 1))
        area = performance(scores, members, 0.95, [], 0.0).area
        assert area.interval is not None
        widths.append(area.interval.high - area.interval.low)
    assert widths[1] > 2 * widths[0]


def test_the_advantage_is_the_mean_over_models_of_rates_at_a_threshold():
    scores, members = game(7, 9, 1, 0, 4)
    members[:, 0], members[:, 1] = True, False
    gaps = [
        np.mean(row[inside] >= 0.5) - np.mean(row[~inside] >= 0.5)
        for row, inside in zip(scores, members, strict=True)
    ]
    found = advantage(scores, members, 0.95, 0.5)
    assert found.point == pytest.approx(np.mean(gaps))
    assert found.standard_error == pytest.approx(np.std(gaps, ddof=1) / np.sqrt(7))


def test_rates_that_too_few_pairs_can_show_are_left_out():
    scores, members = game(10, 60, 1, 0, 5)
    found = performance(scores, members, 0.95, [0.001, 0.1], 0.5)
    assert list(found.true_positive) == [0.1]


def test_one_model_has_no_interval():
    scores, members = game(1, 60, 1, 0, 6)
    found = performance(scores, members, 0.95, [0.5], 0.5)
    assert found.area.interval is None
    assert found.true_positive[0.5].interval is None
    assert found.advantage.interval is None


@pytest.mark.parametrize(
    ("scores", "members", "message"),
    [
        (np.zeros((2, 3)), np.zeros((2, 2), bool), "give both as"),
        (np.full((1, 2), np.nan), np.array([[True, False]]), "not a number"),
        (np.zeros((2, 3)), np.ones((2, 3), bool), "only members"),
        (np.zeros((2, 2)), np.array([[True, True], [False, True]]), "only members, or none"),
    ],
)
def test_what_has_no_curve_is_refused(scores, members, message):
    with pytest.raises(InputError, match=message):
        performance(scores, members, 0.95, [], 0.0)


def test_the_area_of_independent_trials_is_the_share_of_pairs():
    """Against a loop over pairs, with ties; fully apart it is the exact interval of k wins."""
    rng = np.random.default_rng(7)
    members = np.arange(30) % 3 == 0
    scores = np.round(rng.normal(members, 1), 1)
    wins = [(a > b) + (a == b) / 2 for a in scores[members] for b in scores[~members]]
    found = independent_area(scores, members, 0.95)
    assert found.point == pytest.approx(np.mean(wins))
    for apart in (members, ~members):
        found = independent_area(apart.astype(float), members, 0.95)
        exact = clopper_pearson(10 if apart is members else 0, 10, 0.95)
        assert (found.point == 1) == (apart is members)
        assert found.interval == exact


@pytest.mark.parametrize(("size_in", "size_out"), [(2, 2), (20, 20), (20, 60), (60, 20)])
def test_the_interval_of_the_area_covers_it_at_separation_and_at_small_sizes(size_in, size_out):
    """Of normal scores, and of those whose area varies most: members on either side of a point."""
    rng = np.random.default_rng(size_in)
    members = np.arange(size_in + size_out) < size_in
    repeats, missed = 400, 0.05
    for truth in (0.5, 0.9, 0.99):
        shift = norm.ppf(truth) * np.sqrt(2)
        normal = rng.normal(shift * members, 1, (repeats, members.size))
        sides = np.where(rng.random((repeats, members.size)) < truth, 1.0, -1.0) * members
        for drawn in (normal, sides):
            found = [independent_area(scores, members, 1 - missed).interval for scores in drawn]
            outside = sum(each is None or not each.low <= truth <= each.high for each in found)
            assert outside <= binom.ppf(0.9999, repeats, missed)


@pytest.mark.parametrize("infinite", [np.inf, -np.inf])
def test_infinite_scores_are_ties_of_each_other(infinite):
    members = np.array([[True, False, True, False, True, False]])
    scores = np.array([[infinite, infinite, infinite, infinite, 1.0, 2.0]])
    finite = np.where(np.isinf(scores), np.copysign(9.0, infinite), scores)
    found, alike = curve(scores, members), curve(finite, members)
    np.testing.assert_array_equal(found.true_positive, alike.true_positive)
    np.testing.assert_array_equal(found.false_positive, alike.false_positive)
    assert curve(np.full((1, 6), infinite), members).area == 0.5
