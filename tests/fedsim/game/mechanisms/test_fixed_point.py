"""Integers that can be summed modulo 2^32, and what rounding to them gives away."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from adversaries.errors import InputError
from fedsim.game.mechanisms import fixed_point
from fedsim.game.mechanisms.fixed_point import (
    TAIL,
    FixedPoint,
    choose,
    message_bits,
    reach,
    summed,
)


def grid(clients=8, parameters=100, noise_multiplier=1.2):
    return choose(noise_multiplier, 1.0, 1.0, 600, clients, parameters)


@given(
    st.floats(1e-3, 1e3),
    st.floats(1e-3, 1e3),
    st.integers(1, 10**6),
    st.integers(2, 5000),
    st.integers(1, 10**6),
)
@example(901.0, 1.0, 1, 4097, 602098)
def test_the_range_holds_every_clean_sum_and_the_total_cannot_wrap(
    z, clipping_norm, records, clients, parameters
):
    # A range twice as wide rounds twice as much, which takes this share of it for more noise.
    taken = (1 + TAIL * z * math.sqrt(parameters / clients)) / 2 ** (message_bits(clients) - 1)
    if taken >= 1:
        with pytest.raises(InputError, match="does not fit"):
            choose(z, 2 * clipping_norm, clipping_norm, records, clients, parameters)
        return
    found = choose(z, 2 * clipping_norm, clipping_norm, records, clients, parameters)
    assert records * clipping_norm + 12 * found.share_std <= found.limit
    assert clients * (found.limit / found.step) < 2**31
    assert math.log2(found.step) == int(math.log2(found.step))
    assert found.noise_std == pytest.approx(z * found.sensitivity)
    bound = 2 * clipping_norm + found.step * math.sqrt(parameters)
    assert found.sensitivity == pytest.approx(bound)


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(2, 40))
def test_the_sum_of_messages_is_the_sum_of_what_they_stand_for(seed, clients):
    found = grid(clients)
    random = np.random.default_rng(seed)
    points = random.integers(-(2 ** (found.bits - 1)), 2 ** (found.bits - 1) + 1, (clients, 3, 5))
    messages = [found.message(each * found.step) for each in points]
    assert all(message.dtype == np.uint32 for message in messages)
    np.testing.assert_array_equal(found.values(summed(messages)), points.sum(0) * found.step)


def test_rounding_moves_neighbours_apart_by_no_more_than_the_stated_sensitivity():
    found = grid(parameters=64)
    # The worst case: each coordinate of one sum is rounded up, each of the other down.
    one = torch.full((64,), found.step * 0.51, dtype=torch.float64)
    other = torch.full((64,), found.step * 0.49 - 1 / 8, dtype=torch.float64)
    apart = float((found.nearest(one) - found.nearest(other)).norm())
    assert float((one - other).norm()) < apart <= found.sensitivity * (1 + 1e-12)


def test_a_message_beyond_the_range_is_cut_off():
    found = grid()
    sent = found.message(np.array([found.limit, -found.limit, 2000.0, -2000.0, math.inf]))
    limit = found.limit
    np.testing.assert_array_equal(found.values(sent), [limit, -limit, limit, -limit, limit])


@settings(max_examples=50)
@given(st.integers(0, 2**32), st.integers(1, 40), st.floats(0.01, 10))
def test_a_sum_of_too_many_records_is_moved_by_one_record_as_far_as_any(seed, parameters, scale):
    """A client may have more than data.records records: its sum is shortened, not refused."""
    found, random = grid(parameters=parameters), np.random.default_rng(seed)
    one = random.normal(size=(1, parameters)) * found.longest * scale / math.sqrt(parameters)
    record = random.normal(size=(1, parameters))
    other = one + record / np.linalg.norm(record)  # of length C
    shortened = [found.clean(torch.from_numpy(each)) for each in (one, other)]
    assert float((shortened[0] - shortened[1]).norm()) <= found.sensitivity * (1 + 1e-9)
    rounding = found.step * math.sqrt(parameters)
    assert max(float(each.norm()) for each in shortened) <= found.longest + rounding
    if np.linalg.norm(one) <= found.longest:
        torch.testing.assert_close(shortened[0], found.nearest(torch.from_numpy(one)))


def _total_variation(share, clients):
    """Of a sum of rounded Gaussians to round(Gaussian + uniforms), by brute force on fine grids."""
    reach = math.ceil(12 * share * math.sqrt(clients)) + clients
    points = np.arange(-reach, reach + 1)
    rounded = np.diff(stats.norm.cdf(np.arange(-reach - 0.5, reach + 1), scale=share))
    total = np.ones(1)
    for _ in range(clients):
        total = np.convolve(total, rounded)
    middle = len(total) // 2
    total = total[middle - reach : middle + reach + 1]
    # round(N + V), V a sum of clients - 1 uniforms, as N(0, m s^2) convolved with clients uniforms.
    fine = 64
    x = np.arange(-reach * fine, reach * fine + 1) / fine
    density = stats.norm.pdf(x, scale=share * math.sqrt(clients))
    box = np.ones(fine + 1)
    box[[0, -1]] = 0.5
    for _ in range(clients):
        density = np.convolve(density, box / fine, mode="same")
    mechanism = density[::fine]
    assert len(mechanism) == len(points)
    return float(np.abs(total - mechanism).sum() / 2)


@pytest.mark.parametrize("clients", [2, 3, 5])
@pytest.mark.parametrize("share", [1.6, 1.8])
def test_the_sum_of_rounded_noises_is_as_near_to_a_gaussian_mechanism_as_stated(clients, share):
    noise = math.sqrt(clients) * share
    stated = FixedPoint(1.0, 20, 1.0, noise, clients, 1, 0.0).total_variation(1)
    assert stated < 0.1  # a bound of 1 would hold for anything
    # The quadrature of the brute force is good to about 1e-6.
    assert _total_variation(share, clients) <= stated + 1e-5
    assert _total_variation(0.5, clients) > 1e-3  # it sees coarse rounding


@pytest.mark.parametrize("clients", [1, 2, 3, 10, 300])
@pytest.mark.parametrize("share", [1.0, 1.3, 4.0])
def test_each_part_of_the_bound_covers_what_it_stands_for(clients, share):
    # The points within the reach: a sum of Gaussians leaves it, less m/2 steps of rounding, as
    # rarely as stated.
    room = (reach(share, clients) - clients / 2) / (share * math.sqrt(clients))
    assert stats.norm.logsf(room) <= math.log(3e-316)
    # A point's difference is at most that of the two characteristic functions, which at 0 < share
    # is the sum of powers against the power of the sum.
    t = np.linspace(-math.pi, math.pi, 20001)[:, None] + 2 * math.pi * np.arange(-6, 7)
    parts = np.exp(-((share * t) ** 2) / 2) * np.sinc(t / (2 * math.pi))
    apart = np.abs(parts.sum(1) ** clients - (parts**clients).sum(1)).max()
    within = 2 * reach(share, clients) + 1
    stated = fixed_point._aliasing(share, clients)
    assert stated == 1.0 or within * apart / 2 <= stated


def test_the_bound_falls_fast_and_what_is_too_coarse_counts_for_everything():
    def stated(share):
        return FixedPoint(1.0, 20, 1.0, share * 2, 4, 10, 0.0).total_variation(3)

    assert stated(0.9) == 1.0
    assert stated(2.0) > stated(3.0) > stated(4.0)
    assert stated(4.0) < 1e-25


def test_the_bound_grows_with_rounds_and_parameters():
    assert grid().total_variation(20) == pytest.approx(20 * grid().total_variation(1))
    double = grid(parameters=200).total_variation(1)
    assert double == pytest.approx(2 * grid().total_variation(1))


def test_coarse_noise_is_refused_in_one_line_and_fine_noise_is_not():
    fixed_point.check_rounding(grid(), 30, 1e-5, 20.0)
    with pytest.raises(InputError, match=r"raise the noise, or lower data\.records") as error:
        fixed_point.check_rounding(grid(noise_multiplier=1e-9), 30, 1e-5, 1.0)
    assert "\n" not in str(error.value)


def test_what_integers_leak_grows_with_epsilon_and_is_refused_where_it_counts():
    """(1 + e^epsilon) tau above delta/1000, also where a double has no such e^epsilon."""
    found, delta = grid(noise_multiplier=0.2), 1e-5
    edge = math.log(1e-3 * delta / found.total_variation(10))
    fixed_point.check_rounding(found, 10, delta, edge - 0.01)
    for epsilon in (edge + 0.01, 194.0, 1e4, math.inf):
        with pytest.raises(InputError, match=r"not negligible beside privacy\.delta"):
            fixed_point.check_rounding(found, 10, delta, epsilon)


def test_too_much_noise_for_integers_is_refused():
    with pytest.raises(InputError, match="lower the noise"):
        choose(1e9, 1.0, 1.0, 100, 2**25, 10)
