"""What a search costs: the theorems, against a library and selections worked out exactly."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.rdp import RdpAccountant
from dp_accounting.rdp.rdp_privacy_accountant import compute_delta
from scipy.special import logsumexp

from adversaries.errors import InputError
from fedsim.privacy import private_selection as selection
from fedsim.privacy.accounting import PLD, RENYI
from fedsim.privacy.mechanism import Mechanism, Neighbouring

Array = npt.NDArray[np.float64]
Generating = Callable[[float], float]


@pytest.mark.parametrize("rate", [1.0, 0.1])
@pytest.mark.parametrize("mean", [2, 30])
def test_the_theorems_are_those_of_dp_accounting(rate: float, mean: int) -> None:
    mechanism = Mechanism.alike(4.0, 1, rate)
    event = GaussianDpEvent(4.0) if rate == 1 else PoissonSampledDpEvent(rate, GaussianDpEvent(4.0))

    def library(shape: float) -> float:
        accountant = RdpAccountant(RENYI.orders)
        accountant.compose(RepeatAndSelectDpEvent(event, mean, shape))
        return float(accountant.get_epsilon(1e-5))

    orders, curve = RENYI.orders, RENYI.curve(mechanism)
    for shape in (0.0, 1.0, 2.5):
        ours = selection.repeated_truncated(orders, curve, mean, shape)
        # Its series of sampled steps is looser at fractional orders; never tighter.
        assert RENYI.converted(ours, 1e-5) == pytest.approx(library(shape), rel=0.02)
        assert RENYI.converted(ours, 1e-5) <= library(shape) * (1 + 1e-9)
    # It takes delta from the divergences, where `search_cost` has the exact one.
    limits = [math.log1p(1 / (each - 1)) for each in orders]
    implied = np.array([compute_delta(orders, curve, limit)[0] for limit in limits])
    exact = np.array([PLD.delta(mechanism, limit) for limit in limits])
    ours, tighter = (
        RENYI.converted(selection.repeated_poisson(orders, curve, deltas, mean), 1e-5)
        for deltas in (implied, exact)
    )
    assert tighter <= ours == pytest.approx(library(math.inf), rel=0.02)


def _truncated(mean: float, shape: float) -> Generating:
    gamma = selection.gamma_of_mean(mean, shape)
    if shape == 0:
        return lambda s: math.log1p(-(1 - gamma) * s) / math.log(gamma)
    least = gamma**-shape - 1
    return lambda s: ((1 - (1 - gamma) * s) ** -shape - 1) / least


def _poisson(mean: float) -> Generating:
    return lambda s: math.exp(mean * (s - 1))


def _best(pgf: Generating, p: float) -> Array:
    """Return the law of the best of K answers, of which each is the better one with chance p."""
    return np.array([pgf(0.0), pgf(1 - p) - pgf(0.0), 1 - pgf(1 - p)])


def _divergence(p: Array, q: Array, order: float) -> float:
    p, q = np.log(p[p > 0]), np.log(q[p > 0])
    return float(logsumexp(order * p + (1 - order) * q)) / (order - 1)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("mean", [1.5, 5.0, 40.0])
def test_no_selection_among_randomised_responses_tells_more_than_the_bound(
    epsilon: float, mean: float
) -> None:
    chance = 1 / (1 + math.exp(-epsilon))
    one = np.array([1 - chance, chance])
    orders = RENYI.orders
    curve = np.array([_divergence(one, one[::-1], each) for each in orders])
    # Of one answer: the most that the likelihood ratio exceeds by.
    deltas = np.array([max(0.0, chance - (1 + 1 / (each - 1)) * (1 - chance)) for each in orders])
    bounds = {
        "poisson": (selection.repeated_poisson(orders, curve, deltas, mean), _poisson(mean)),
        **{
            f"shape {shape}": (
                selection.repeated_truncated(orders, curve, mean, shape),
                _truncated(mean, shape),
            )
            for shape in (0.0, 1.0, 3.0)
        },
    }
    for name, (bound, pgf) in bounds.items():
        # The generating function has the mean that was asked for.
        assert (pgf(1.0) - pgf(1 - 1e-6)) / 1e-6 == pytest.approx(mean, rel=1e-3), name
        laws = [_best(pgf, chance), _best(pgf, 1 - chance)]
        told = np.array(
            [max(_divergence(*laws, each), _divergence(laws[1], laws[0], each)) for each in orders]
        )
        assert np.all(told <= bound * (1 + 1e-9) + 1e-12), name
        if epsilon == 2.0:  # and the bound is not idle: half of it is told at least, somewhere
            assert np.max(told / bound) > 0.3, name


def test_a_setting_that_is_drawn_tells_what_the_settings_tell_on_average() -> None:
    strong, weak = np.array([0.5, 0.5]), np.array([0.9, 0.1])
    joint = np.concatenate([strong, weak]) / 2
    other = np.concatenate([strong[::-1], weak[::-1]]) / 2
    orders = np.array([1.5, 2.0, 8.0])
    curves = np.array([[_divergence(p, p[::-1], a) for a in orders] for p in (strong, weak)])
    expected = [_divergence(joint, other, order) for order in orders]
    assert selection.mixture(orders, curves) == pytest.approx(expected)


def test_what_is_seen_of_all_trainings_composes_and_the_best_alone_costs_less() -> None:
    settings = [Mechanism.alike(z, 30) for z in (10.0, 12.0, 20.0, 40.0, 80.0)] * 4
    found = selection.search_cost(settings, 1e-5)
    mu = math.sqrt(sum(each.mu**2 for each in settings))
    together = PLD.epsilon(Mechanism.alike(1 / mu, 1), 1e-5)
    assert found.all_trainings == pytest.approx(together, rel=1e-9)
    assert found.poisson is not None
    assert found.logarithmic is not None
    dearest = PLD.epsilon(settings[0], 1e-5)
    assert dearest < min(found.poisson, found.logarithmic)
    assert max(found.poisson, found.logarithmic) < found.all_trainings
    # One setting is no search, and sampled replacement has no known divergence.
    assert selection.search_cost(settings[:1], 1e-5).all_trainings == dearest
    replaced = [Mechanism.alike(z, 5, 0.5, Neighbouring.REPLACE) for z in (5.0, 6.0)]
    assert selection.search_cost(replaced, 1e-5).poisson is None
    assert "add-remove" in selection.search_cost(replaced, 1e-5).note
    with pytest.raises(InputError, match="no setting"):
        selection.search_cost([], 1e-5)
