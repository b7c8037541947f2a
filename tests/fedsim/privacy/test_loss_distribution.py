"""Discretised privacy losses: what they say, and how they compose."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adversaries.statistics import gaussian
from fedsim.privacy import loss_distribution
from fedsim.privacy.loss_distribution import LossDistribution
from fedsim.privacy.mechanism import Mechanism, Neighbouring, Steps


def coin(width=0.5):
    """Return the loss of randomised response at four widths, with a little that is infinite."""
    epsilon = 4 * width
    truth = 0.99 * math.exp(epsilon) / (1 + math.exp(epsilon))
    masses = np.zeros(9)
    masses[0], masses[-1] = 0.99 - truth, truth
    return LossDistribution(width, -4, masses, 0.01)


def test_the_delta_of_a_coin_is_what_its_two_losses_leave_above_epsilon():
    losses = coin()
    assert losses.delta(2.0) == pytest.approx(0.01)
    assert losses.delta(5.0) == pytest.approx(0.01)
    assert losses.delta(1.0) == pytest.approx(0.01 + losses.masses[-1] * (1 - math.exp(-1)))
    assert losses.delta(-9.0) == pytest.approx(1, abs=1e-3)


@given(st.floats(0.011, 0.6))
def test_epsilon_is_the_inverse_of_delta(delta):
    losses = coin()
    epsilon = losses.epsilon(delta)
    assert losses.delta(epsilon) == pytest.approx(delta, rel=1e-9)


def test_an_infinite_loss_more_likely_than_delta_has_no_epsilon():
    assert coin().epsilon(0.01) == math.inf
    assert coin().epsilon(0.99) == 0.0


@pytest.mark.parametrize("neighbouring", Neighbouring)
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0, 4.0])
def test_full_batches_on_the_grid_are_the_closed_form(neighbouring, epsilon):
    # A sampled step so rare that it does not count keeps the closed form from being taken.
    mechanism = Mechanism((Steps(8.0, 30), Steps(8.0, 1, 1e-9)), neighbouring)
    for losses in loss_distribution.composed(mechanism):
        full = gaussian.delta(math.sqrt(30) / 8, epsilon)
        assert losses.delta(epsilon) == pytest.approx(full, rel=1e-4)
        assert losses.tail(epsilon) == pytest.approx(
            gaussian.tail(math.sqrt(30) / 8, epsilon), rel=1e-4
        )
        assert losses.tail(-epsilon) == pytest.approx(
            gaussian.tail(math.sqrt(30) / 8, -epsilon), rel=1e-4
        )


@given(st.floats(0.6, 5), st.floats(1e-4, 0.9), st.integers(1, 200), st.sampled_from(Neighbouring))
@settings(max_examples=20)
def test_a_composed_distribution_is_one_and_undone_by_the_other_direction(
    z, q, steps, neighbouring
):
    mechanism = Mechanism.alike(z, steps, q, neighbouring)
    there, *others = loss_distribution.composed(mechanism)
    back = others[0] if others else there
    for losses in (there, back):
        assert losses.masses.sum() + losses.infinite == pytest.approx(1, abs=1e-9)
    # 1 - delta(0) is the overlap of the two worlds, which has no direction.
    assert there.delta(0.0) == pytest.approx(back.delta(0.0), rel=1e-3, abs=1e-9)


@pytest.mark.parametrize(("z", "q", "steps"), [(0.3, 1e-5, 1000), (0.5, 1e-4, 100_000)])
def test_rare_large_losses_do_not_blow_up_the_grid(z, q, steps):
    mechanism = Mechanism.alike(z, steps, q)
    for losses in loss_distribution.composed(mechanism):
        assert len(losses.masses) < 2**22


@pytest.mark.parametrize("neighbouring", Neighbouring)
@given(z=st.floats(0.3, 10), q=st.floats(1e-4, 1), delta=st.floats(1e-12, 0.5))
@settings(max_examples=50)
def test_a_single_steps_epsilon_falls_with_noise_and_delta_and_rises_with_sampling(
    neighbouring, z, q, delta
):
    def epsilon(z, q, delta):
        return loss_distribution.step_epsilon(Steps(z, 1, q), neighbouring, delta)

    here = epsilon(z, q, delta)
    assert here >= 0
    assert epsilon(1.1 * z, q, delta) <= here * (1 + 1e-9)
    assert epsilon(z, q / 2, delta) <= here * (1 + 1e-9)
    assert epsilon(z, q, delta * 1.5) <= here * (1 + 1e-9)
