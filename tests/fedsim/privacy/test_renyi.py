"""The divergence of a sampled step is the integral that defines it, at fractional orders too."""

import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.rdp import RdpAccountant
from scipy.integrate import quad

from fedsim.privacy.mechanism import Steps
from fedsim.privacy.renyi import LEAST_NOISE, sampled_divergence

STEPS = [(1.0, 0.01), (0.8, 0.1), (4.0, 0.5), (0.4, 0.02), (20.0, 0.99), (LEAST_NOISE, 0.1)]


def library(steps: Steps, orders: list[float]) -> list[float]:
    accountant = RdpAccountant(orders)
    step = GaussianDpEvent(steps.noise_multiplier)
    accountant.compose(PoissonSampledDpEvent(steps.sampling_rate, step))
    return list(accountant.rdp)


@pytest.mark.parametrize(("noise_multiplier", "rate"), STEPS)
def test_next_to_a_whole_order_it_is_the_binomial_sum(noise_multiplier: float, rate: float) -> None:
    steps = Steps(noise_multiplier, 1, rate)
    whole = [2.0, 3.0, 7.0, 11.0]
    found = sampled_divergence(steps, np.array(whole) + 1e-9)
    assert found == pytest.approx(library(steps, whole), rel=1e-7, abs=1e-13)


@pytest.mark.parametrize("order", [1.1, 1.7, 2.5, 10.9])
def test_at_fractional_orders_it_is_the_integral(order: float) -> None:
    s, q = 0.8, 0.1

    def moment(z: float) -> float:
        ratio = 1 - q + q * math.exp((2 * z - 1) / (2 * s * s))
        return ratio**order * math.exp(-(z**2) / (2 * s * s)) / (s * math.sqrt(2 * math.pi))

    expected, _ = quad(moment, -12, 24, epsabs=0, epsrel=1e-12, limit=500, points=[0, order])
    (found,) = sampled_divergence(Steps(s, 1, q), np.array([order]))
    assert found == pytest.approx(math.log(expected) / (order - 1), rel=1e-9)


def test_the_series_is_an_upper_bound_and_serves_where_the_grid_would_be_too_fine() -> None:
    orders = [1.1, 1.7, 2.0, 2.5]
    fine, steps = Steps(LEAST_NOISE / 2, 1, 0.1), Steps(0.8, 1, 0.1)
    assert sampled_divergence(fine, np.array(orders)).tolist() == library(fine, orders)
    found = sampled_divergence(steps, np.array(orders))
    assert (found <= np.array(library(steps, orders)) * (1 + 1e-12)).all()
    assert found[1] < 0.95 * library(steps, orders)[1]
