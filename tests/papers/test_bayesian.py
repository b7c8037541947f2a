"""The Bayesian accountant agrees with its authors' code, with the moments accountant and itself."""

import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.rdp import RdpAccountant
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from fedsim.privacy.mechanism import Neighbouring
from papers.triastcyn import bayesian
from papers.triastcyn.bayesian import ORDERS

REPLACE = Neighbouring.REPLACE
AUTHORS_GAMMA = 1 - (1 - 1e-16)
"""What the authors' 1 - 1e-16 leaves in double precision: 1.11e-16."""

rates = st.one_of(st.just(1.0), st.floats(1e-5, 1.0))
ratios = st.floats(1e-3, 3.0)


def _epsilon(costs, delta, gamma=0.0):
    found, _ = bayesian.epsilons(costs, ORDERS, delta, gamma)
    return float(found)


# Vectors V1, V3 and V9m of the authors' implementation, run unchanged; V9m in closed form.
@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "order", "delta", "epsilon"),
    [
        (1.0, 0.0010666666666666667, 10_000, 12, 1e-5, 1.1064681805649317),
        (4.0, 0.01, 1000, 32, 1e-5, 0.46840529077678594),
        (8.380227035, 1.0, 30, 4, 0.01, 2.2192395320580185),
    ],
)
def test_one_distance_gives_the_numbers_of_the_authors_code(
    sigma, rate, steps, order, delta, epsilon
):
    costs = steps * bayesian.log_moments([order], 1.0, sigma, rate)
    found, decided = bayesian.epsilons(costs, [order], delta)
    assert found == pytest.approx(epsilon, rel=1e-12)
    assert decided == order


def test_sampled_distances_give_the_number_of_the_authors_code():
    """Vector V5: 100 calls of one step each, of 100 steps in total."""
    orders, distances = [2, 4, 8, 16, 32], np.linspace(0.1, 1, 10)
    cost = bayesian.step_costs(orders, distances, 1.0, 100, 0.01, gamma=AUTHORS_GAMMA)
    assert bayesian.epsilons(100 * cost, orders, 1e-5)[0] == pytest.approx(
        1.913600027454292, rel=1e-9
    )


@pytest.mark.parametrize("rate", [1.0, 0.3, 0.01])
@pytest.mark.parametrize("sigma", [0.7, 2.0, 20.0])
def test_one_distance_is_the_moments_accountant_at_whole_orders(rate, sigma):
    steps, delta = 50, 1e-5
    event = GaussianDpEvent(sigma)
    accountant = RdpAccountant(ORDERS + 1.0)
    accountant.compose(event if rate == 1 else PoissonSampledDpEvent(rate, event), steps)
    costs = steps * bayesian.log_moments(ORDERS, 1.0, sigma, rate)
    np.testing.assert_allclose(costs, ORDERS * accountant.rdp, rtol=1e-9)
    expected = (accountant.rdp - math.log(delta) / ORDERS).min()
    assert _epsilon(costs, delta) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("rate", [1.0, 0.5, 0.02])
@pytest.mark.parametrize("order", [1, 2, 5])
@pytest.mark.parametrize("ratio", [0.2, 1.0])
def test_moments_are_those_of_the_mixture_by_numerical_integration(rate, order, ratio):
    def mixture(x, mean):
        return (1 - rate) * norm.pdf(x) + rate * norm.pdf(x - mean)

    def integrated(numerator, denominator):
        value, _ = quad(
            lambda x: numerator(x) * (numerator(x) / denominator(x)) ** order,
            -15,
            15 + order * ratio,
            epsabs=0,
            epsrel=1e-11,
            limit=500,
        )
        return math.log(value)

    (found,) = bayesian.log_moments([order], ratio, 1.0, rate)
    with_record = integrated(lambda x: mixture(x, ratio), norm.pdf)
    assert found == pytest.approx(with_record, rel=1e-6, abs=1e-9)
    # The other direction, and that of a pair in which both records may be there, are no larger.
    assert integrated(norm.pdf, lambda x: mixture(x, ratio)) <= found + 1e-9
    (replaced,) = bayesian.log_moments([order], ratio, 1.0, rate, REPLACE)
    for present in (ratio, ratio / 2, 0.0):
        absent = present - ratio
        pair = (lambda x, m=present: mixture(x, m), lambda x, m=absent: mixture(x, m))
        assert integrated(*pair) <= replaced + 1e-9


def test_without_sampling_replaced_records_differ_by_their_distance_alone():
    distances = np.array([0.1, 1.0, 2.0])
    np.testing.assert_array_equal(
        bayesian.log_moments(ORDERS, distances, 3.0, 1.0, REPLACE),
        bayesian.log_moments(ORDERS, distances, 3.0),
    )


@given(
    rate=rates,
    distance=st.one_of(st.just(0.0), ratios, st.floats(1e-12, 1e200)),
    sigma=st.one_of(st.just(0.0), st.just(1.0), st.floats(1e-12, 1e12)),
    neighbouring=st.sampled_from(Neighbouring),
)
@example(rate=1.0, distance=5.85e149, sigma=1.0, neighbouring=REPLACE)  # all steps overflow
def test_no_input_however_extreme_gives_nan_or_a_negative_cost(rate, distance, sigma, neighbouring):
    distances = np.array([distance, 0.0, distance / 2])
    moments = bayesian.log_moments(ORDERS, distances, sigma, rate, neighbouring)
    costs = bayesian.estimate(moments, 1000)
    for values in (moments, costs):
        assert not np.isnan(values).any()
        assert (values >= 0).all()
    assert (moments[1] == 0).all()
    if distance and not sigma:
        assert np.isinf(costs).all()
    stated = _epsilon(costs, 1e-5, 1e-13)
    assert stated >= 0
    assert (stated == math.inf) == bool(np.isinf(costs).all())


@given(rate=rates, ratio=ratios)
def test_moments_in_the_ranges_of_dp_sgd_are_finite_and_grow_with_the_order(rate, ratio):
    moments = bayesian.log_moments(ORDERS, ratio, 1.0, rate)
    assert np.isfinite(moments).all()
    # Log-moments are convex in the order and 0 at 0.
    assert (np.diff(moments / ORDERS) >= -1e-12 * moments[1:]).all()
    assert (moments <= bayesian.log_moments(ORDERS, ratio, 1.0) * (1 + 1e-9)).all()


def test_tiny_costs_keep_their_digits():
    """At lambda = 1, E exp(K(K-1)a) - 1 = q^2 (e^(2a) - 1), here about 1e-16."""
    rate, ratio = 1e-5, 1e-3
    (moment,) = bayesian.log_moments([1], ratio, 1.0, rate)
    assert moment == pytest.approx(rate**2 * math.expm1(ratio**2), rel=1e-10)
    (cost,) = bayesian.step_costs([1], [ratio, ratio], 1.0, 10, rate)
    assert cost == pytest.approx(moment, rel=1e-10)


@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**32),
    rate=st.one_of(st.just(1.0), st.floats(1e-4, 0.5)),
    neighbouring=st.sampled_from(Neighbouring),
)
def test_epsilon_grows_with_distances_sampling_and_steps_and_falls_with_noise(
    seed, rate, neighbouring
):
    generator = np.random.default_rng(seed)
    distances, sigma = generator.uniform(0.05, 1, 12), float(generator.uniform(0.5, 5))

    def epsilon(longer=1, noisier=1, q=rate, steps=10):
        cost = bayesian.step_costs(
            ORDERS, longer * distances, noisier * sigma, steps, q, neighbouring
        )
        return _epsilon(steps * cost, 1e-5)

    here, slack = epsilon(), 1 + 1e-9
    assert epsilon(longer=1.5) * slack >= here
    assert epsilon(noisier=1.5) <= here * slack
    assert epsilon(q=rate / 2) <= here * slack
    assert epsilon(steps=20) * slack >= here


@given(
    distance=st.floats(0, 2),
    rate=rates,
    steps=st.integers(1, 10_000),
    gamma=st.floats(1e-16, 0.5),
)
def test_equal_distances_leave_nothing_to_estimate(distance, rate, steps, gamma):
    moments = bayesian.log_moments(ORDERS, np.full(5, distance), 1.0, rate)
    np.testing.assert_allclose(bayesian.estimate(moments, steps, gamma), moments[0], rtol=1e-12)


def _repeated(generator, records, repetitions, gamma):
    """Return estimates [repetitions] of the cost at one order, and the cost itself."""
    values, chances = np.array([0.4, 0.7, 1.0]), np.array([0.3, 0.4, 0.3])
    order, sigma, steps = 3, 2.0, 5
    moments = bayesian.log_moments([order], values, sigma)[:, 0]
    truth = math.log(chances @ np.exp(steps * moments)) / steps
    drawn = generator.choice(values, (repetitions, records), p=chances)
    costs = bayesian.step_costs([order], drawn, sigma, steps, gamma=gamma)
    return costs[:, 0], truth


def test_the_estimator_overestimates_as_often_as_it_says():
    """Gamma = 0.05 on 4000 samples: 95 %, of which four standard errors are 1.4 %."""
    costs, truth = _repeated(np.random.default_rng(0), 60, 4000, 0.05)
    assert (costs >= truth).mean() >= 0.95 - 0.014


def test_the_default_confidence_never_underestimates_in_practice():
    costs, truth = _repeated(np.random.default_rng(1), 48, 4000, bayesian.GAMMA)
    assert (costs > truth).all()


def test_many_records_bring_the_estimate_down_to_the_truth():
    few, truth = _repeated(np.random.default_rng(2), 50, 200, bayesian.GAMMA)
    many, _ = _repeated(np.random.default_rng(2), 100_000, 5, bayesian.GAMMA)
    assert many == pytest.approx(truth, rel=0.02)
    assert few.mean() > 1.1 * truth


def test_blocks_of_rows_are_computed_alike(monkeypatch):
    generator = np.random.default_rng(0)
    distances, sigma = generator.uniform(0, 1, (4, 3, 6)), generator.uniform(1, 2, (4, 3))
    whole = bayesian.step_costs(ORDERS, distances, sigma, 3, 0.2)
    monkeypatch.setattr(bayesian, "BLOCK", 700)
    np.testing.assert_array_equal(bayesian.step_costs(ORDERS, distances, sigma, 3, 0.2), whole)
    for row in np.ndindex(4, 3):
        alone = bayesian.estimate(
            bayesian.log_moments(ORDERS, distances[row], sigma[row], 0.2), 3, bayesian.GAMMA
        )
        np.testing.assert_allclose(whole[row], alone, rtol=1e-12)


def test_the_gaussian_loss_exceeds_epsilon_no_more_often_than_delta():
    """Strong BDP bounds the tail of the loss itself: N(mu^2/2, mu^2) for a Gaussian step."""
    for mu in (0.1, 0.5, 2.0):
        stated = _epsilon(bayesian.log_moments(ORDERS, mu, 1.0), 1e-3)
        assert norm.sf(stated, mu**2 / 2, mu) <= 1e-3


def test_what_holds_for_a_percentile_holds_for_that_share_of_records():
    """Brute force: the exact tail of each record's loss, which is Gaussian."""
    generator = np.random.default_rng(0)
    # Exponential distances: some records are far more exposed than most.
    distances, sigma, steps, delta = generator.exponential(0.2, 100_000), 4.0, 30, 1e-3
    moments = bayesian.log_moments(ORDERS, distances, sigma)
    costs = steps * bayesian.estimate(moments, steps)
    gamma = steps * bayesian.GAMMA
    strict = _epsilon(costs, bayesian.delta_at_percentile(delta, 0.99), gamma)
    mu = math.sqrt(steps) * distances / sigma
    tails = norm.sf(strict, mu**2 / 2, mu)
    assert (tails <= delta).mean() >= 0.99
    average = _epsilon(costs, delta, gamma)
    assert norm.sf(average, mu**2 / 2, mu).mean() <= delta
    assert average < strict
