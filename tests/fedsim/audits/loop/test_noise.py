"""How much noise there was: limits that hold as often as they say, and noise of another shape."""

from dataclasses import replace

import numpy as np
import pytest

from fedsim.audits.steps.noise import (
    ALPHA,
    LEAST_SHARE,
    UNLUCKY,
    NoiseSums,
    Squares,
    echo_p_value,
    freedom_for,
    shape_p_value,
    total,
)

DRAWS, ENOUGH = 4000, 5000


def sums(noise):
    """noise: [steps, numbers], of a model of one tensor, with a configured deviation of 1."""
    energies = np.square(noise).sum(axis=1)
    return NoiseSums(
        len(noise), (squares(energies.sum(), noise.size),), float(np.log(energies).sum())
    )


def squares(energy, freedom):
    return Squares(float(energy), float(energy), freedom)


@pytest.mark.parametrize("freedom", [7, 672, ENOUGH])
def test_the_least_noise_is_below_the_true_share_as_often_as_its_confidence_says(freedom):
    share = 0.9
    energies = share**2 * np.random.default_rng(1).chisquare(freedom, DRAWS)
    wrong = np.mean([squares(each, freedom).interval(0.05).low > share for each in energies])
    assert wrong == pytest.approx(0.05, abs=0.015)


def test_so_many_numbers_are_measured_that_right_noise_nearly_always_shows_its_share():
    freedom = freedom_for(LEAST_SHARE, 0.05, UNLUCKY)
    energies = np.random.default_rng(3).chisquare(freedom, DRAWS)
    told = np.mean([squares(each, freedom).interval(0.05).low >= LEAST_SHARE for each in energies])
    assert told == pytest.approx(1 - UNLUCKY, abs=0.002)
    few = NoiseSums(100, (squares(64_000, 64_000), squares(1000, 1000)))
    assert not few.enough(0.95)  # of the second tensor
    assert total([few] * 20).enough(0.95)


REUSED = {
    "reversed in every second step": lambda noise: np.concatenate([noise, -noise], axis=1).ravel(),
    "slices of one table": lambda noise: np.concatenate(
        [noise.ravel()[7 * step : 7 * step + 650] for step in range(8)]
    ),
    "one step of nine used again, moved": lambda noise: np.concatenate(
        [noise[:3].ravel(), noise.ravel()[16:666], noise[3:].ravel()]
    ),
}


@pytest.mark.parametrize("name", REUSED)
def test_noise_that_is_used_again_is_found_wherever_it_stands(name):
    noise = np.random.default_rng(7).standard_normal((8, 650))
    assert echo_p_value(REUSED[name](noise)) < ALPHA


def test_fresh_noise_does_not_repeat_itself():
    """All 300 p-values are above 1/30,000, as with 99 % of all seeds of right noise."""
    drawn = np.random.default_rng(8).standard_normal((300, 5200))
    assert min(echo_p_value(each) for each in drawn) > 1 / 30_000
    assert echo_p_value(drawn[0][:900]) == 1


def test_a_training_without_noise_among_many_is_not_lost():
    noise = np.random.default_rng(6).standard_normal((500, 650))
    noise[77] = 1e-150
    assert shape_p_value(sums(noise)) < ALPHA
    assert (NoiseSums(least=0.0) + sums(noise)).least == 0


SHAPES = {
    "signs": np.sign,
    "one number for all": lambda noise: np.repeat(noise[:, :1], noise.shape[1], axis=1),
    "every second number twice": lambda noise: np.repeat(noise[:, ::2], 2, axis=1),
    "heavy tails": lambda noise: noise * np.abs(noise),
    "some steps with .6": lambda noise: (
        noise * np.where(np.arange(len(noise)) % 8, 1.0, 0.6)[:, None]
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_noise_of_another_shape_is_found_whatever_its_scale(name):
    noise = np.random.default_rng(4).standard_normal((1200, 16))
    assert shape_p_value(sums(3 * SHAPES[name](noise))) < ALPHA


@pytest.mark.parametrize(("steps", "numbers"), [(5, 1), (700, 7), (48, 650)])
def test_gaussian_noise_is_not_taken_for_another(steps, numbers):
    """Chernoff's bound is above the true probability: none of 300 is below 1/300."""
    drawn = np.random.default_rng(5).standard_normal((300, steps, numbers))
    assert min(shape_p_value(sums(each)) for each in drawn) > 1 / 300


def test_the_tensor_with_the_least_noise_counts():
    """A bias without noise is a hundredth of the numbers, and nothing of its gradient is hidden."""
    bias_without, both = (
        NoiseSums(1000, (squares(640_000, 640_000), squares(energy, 10_000)))
        for energy in (1e-9, 10_000)
    )
    assert bias_without.worst(0.05) < 1e-6
    assert 0.98 < both.worst(0.05) < 1


def test_noise_of_models_of_several_sizes_counts_as_that_of_one_tensor():
    small, large = (NoiseSums(1, (squares(size, size),), 1.0) for size in (20, 30))
    together = total([small, large, large])
    assert (together.steps, together.tensors) == (3, (squares(80, 80),))
    assert shape_p_value(together) == 1  # their lengths cannot be compared
    assert (small + replace(small, least=0.5)).least == 0.5
