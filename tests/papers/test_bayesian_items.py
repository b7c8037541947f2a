"""Items of Triastcyn and Faltings, held against closed forms, plain counts and integrals."""

import numpy as np
import pytest
from scipy import stats

from papers.findings import Means, Scale
from papers.triastcyn import bayesian, estimator, growth, members, orders, outlier


@pytest.fixture
def smoke(tmp_path):
    return Means(Scale.SMOKE, tmp_path, say=lambda what: None)


def _number(finding, name):
    return next(one for one in finding.numbers if one.name == name)


def test_lambda_must_be_searched_and_equal_distances_are_the_moments_accountant(smoke):
    least, unsearched, core = orders.searched(smoke).numbers[-3:]
    assert least.name.endswith("at λ = 12")
    # 10,000 times log E exp(K(K-1)/2) of K ~ Binomial(lambda + 1, q): without the accountant.
    for order, number in ((12, least), (32, unsearched)):
        count = np.arange(order + 2)
        law = stats.binom.pmf(count, order + 1, orders.RATE) @ np.exp(count * (count - 1) / 2)
        assert number.ours == pytest.approx((1e4 * np.log(law) + np.log(1e5)) / order, rel=1e-6)
    assert (least.ours, unsearched.ours) == pytest.approx((1.1065, 94_430), rel=1e-4)
    assert least.ours == pytest.approx(core.ours, rel=1e-9)


def test_distances_of_pairs_are_those_of_a_plain_count():
    vectors = growth.weibull_gradients(np.random.default_rng(1), 2)[:, :4, :7]
    plain = [
        [np.linalg.norm(of[i] - of[j]) for i in range(4) for j in range(i + 1, 4)] for of in vectors
    ]
    np.testing.assert_allclose(growth.pair_distances(vectors), plain, rtol=1e-9)
    bounds = np.quantile(growth.norms(vectors), 0.5, axis=-1)
    short = growth.norms(growth.clipped(vectors, bounds))
    np.testing.assert_allclose(
        short, np.minimum(growth.norms(vectors), bounds[:, None]), rtol=1e-12
    )


def test_equal_distances_cost_what_the_moments_accountant_says():
    distances = np.ones((5, 1225))
    costs = bayesian.step_costs(growth.ORDERS, distances, 1.0, 5, growth.RATE)
    found = growth.epsilons_so_far(costs)
    for step in (1, 5):
        expected = growth.moments_epsilon(1.0, step)
        assert found[step - 1] == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_growth_falls_with_the_noise_and_a_searched_order_hardly_grows(smoke):
    numbers = growth.followed(smoke).numbers
    fixed = [one.ours for one in numbers[2::2]]
    assert fixed[:-1] == sorted(fixed[:-1], reverse=True)
    for one, searched in zip(numbers[::2], numbers[1::2], strict=True):
        assert searched.ours <= one.ours
    # log E exp(K(K-1)/2) of K ~ Binomial(17, 1/1000), 8 times: without the accountant.
    count = np.arange(18)
    law = stats.binom.pmf(count, 17, 1e-3) @ np.exp(count * (count - 1) / 2)
    assert numbers[0].ours == pytest.approx((8 * np.log(law) + np.log(1e5)) / 16, rel=1e-9)


def test_clipping_keeps_the_bayesian_epsilon_below_dp(smoke):
    found = growth.compared(smoke)
    bounded = _number(found, "bounded: largest BDP ε − DP ε").ours
    assert bounded < 0
    # Without clipping nothing keeps a pair from being farther apart.
    assert _number(found, "unbounded: largest BDP ε − DP ε").ours > bounded


def test_theorem_3_is_exact_at_no_gradient_and_far_too_small_at_long_ones():
    near, far = orders.moment(0.0), orders.moment(8.0)
    assert near == pytest.approx(1.732367731e-5, rel=1e-6)
    # (1 - q) + q exp(lambda (lambda + 1)/2): the record's part has nothing to hide in.
    assert far == pytest.approx(np.log1p(1e-3 * np.expm1(10.0)), rel=1e-5)


def test_the_rest_of_the_town_is_within_the_accountants_bound():
    assert outlier.accuracy(2.0) == pytest.approx(0.880797, abs=1e-6)
    distances, noise = outlier.resident_distances(2_000), outlier.multiplier(2.0)
    exact = outlier.exact_rest(distances, noise)
    assert exact < outlier.rest(distances, noise) < 3 * exact
    # Of one distance, the loss is N(mu^2/2, mu^2).
    alone = outlier.exact_rest(np.array([0.3]), 2.0)
    assert alone == pytest.approx(0.15 * stats.norm.isf(1e-5) + 0.15**2 / 2, rel=1e-6)


def test_the_binary_estimator_never_says_none_and_covers_what_it_says():
    for gamma in estimator.GAMMAS:
        said = float(estimator.estimated(0, 100, gamma))
        assert said == pytest.approx(1 - gamma ** (1 / 101), abs=1e-12)
    # Integrated: the Beta posterior of three ones among ten.
    at = float(estimator.estimated(3, 7, 0.05))
    grid = np.linspace(0, at, 200_001)
    mass = np.trapezoid(grid**3 * (1 - grid) ** 7, grid) * 1320
    assert mass == pytest.approx(0.95, abs=1e-6)
    found = estimator.covered_flat(20_000)
    assert found.ours == pytest.approx(0.95, abs=4 * np.sqrt(0.05 * 0.95 / 20_000))
    assert estimator.least_covered()[1] < 0.95


def test_the_continuous_estimator_covers_normal_data_and_not_heavy_tails():
    assert estimator.covered("normal", 20, 20_000).ours == pytest.approx(0.95, abs=0.0062)
    assert estimator.covered("log-normal, s = 3", 20, 2_000).ours < 0.5
    # What each law says is the expectation: a mean of many draws, where it has a variance.
    drawn, log_mean = estimator.LAWS["log-normal, s = 1"]
    values = np.exp(drawn(np.random.default_rng(2), (1000, 1000)))
    assert values.mean() == pytest.approx(np.exp(log_mean), rel=0.01)


def test_a_larger_share_of_records_costs_more():
    for curve in estimator.by_percentile(3).values():
        assert (np.diff(curve) > 0).all()


def test_the_estimators_own_divergences_are_the_integrals():
    at = np.linspace(-30, 30, 400_001)
    first, second = stats.norm.logpdf(at), stats.norm.logpdf(at, 0.4, np.sqrt(1.1))
    order = estimator.ORDERS[500]
    integral = np.log(np.trapezoid(np.exp(order * first + (1 - order) * second), at)) / (order - 1)
    assert estimator.normal_divergence(0.16, 1.1)[500] == pytest.approx(integral, rel=1e-6)
    at = np.linspace(1e-9, 200, 400_001)
    first, second = stats.gamma.logpdf(at, 7.5), stats.gamma.logpdf(at, 7.5, scale=1.2)
    order = estimator.ORDERS[400]
    integral = np.log(np.trapezoid(np.exp(order * first + (1 - order) * second), at)) / (order - 1)
    assert estimator.gamma_divergence(7.5, 1.2)[400] == pytest.approx(integral, rel=1e-6)
    # Ten thousand times the samples: a hundredth of the epsilon.
    assert estimator.epsilon(10**4, 1.0) == pytest.approx(
        100 * estimator.epsilon(10**8, 1.0), rel=0.02
    )


def test_p_values_tell_distributions_apart_and_leave_equal_ones_alone():
    draw = np.random.default_rng(4)
    same = members.Distances(draw.normal(5, 1, (3, 400)), draw.normal(5, 1, (3, 400)))
    apart = members.Distances(draw.normal(5, 1, (3, 400)), draw.normal(6, 2, (3, 400)))
    assert min(one.min() for one in members.p_values(same)) > 0.01
    assert max(one.max() for one in members.p_values(apart)) < 1e-6


@pytest.mark.slow
def test_the_items_of_data_are_made_of_digits(smoke):
    assert len(members.compared(smoke).pictures) == 3
