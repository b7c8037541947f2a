"""What is left over of a mean is its noise: measured with confidence, and looked at for faults."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from adversaries.attacks import noisy_means
from adversaries.attacks.noisy_means import Contribution, Release


def release(noise, round=1):
    energy = float(noise @ noise)
    head = noise[: noisy_means.FINGERPRINT].astype(np.float32)
    return Release(round, noise.size, None, energy, 1e-9, None, {}, {}, head)


def test_clipping_shortens_what_is_longer_and_nothing_else():
    update = np.array([3.0, 4.0])
    np.testing.assert_allclose(noisy_means.clipped(update, 1.0), [0.6, 0.8])
    for norm in (5.0, 9.0, None):
        np.testing.assert_array_equal(noisy_means.clipped(update, norm), update)
    np.testing.assert_array_equal(noisy_means.clipped(np.zeros(2), 1.0), np.zeros(2))


@pytest.mark.parametrize("size", [1, 10, 3000])
def test_the_interval_of_the_noise_covers_it_as_often_as_it_says(size):
    generator, covered, games = np.random.default_rng(size), 0, 1000
    for energy in (np.square(2.5 * generator.standard_normal((games, size))).sum(1)).tolist():
        interval = noisy_means.std_interval(energy, size, 0.9)
        covered += interval.low <= 2.5 <= interval.high
    assert 0.86 * games <= covered <= 0.94 * games


def test_the_ratio_is_that_of_two_gaussian_densities():
    generator = np.random.default_rng(1)
    update, noise, std, weight = (
        generator.standard_normal(6),
        0.4 * generator.standard_normal(6),
        0.4,
        0.3,
    )
    part = Contribution(
        weight, weight * float(np.linalg.norm(update)), weight * float(noise @ update)
    )
    seen = weight * update + noise
    cov = std**2 * np.eye(6)
    expected = multivariate_normal.logpdf(seen, weight * update, cov)
    expected -= multivariate_normal.logpdf(seen, np.zeros(6), cov)
    assert noisy_means.log_likelihood_ratio(part, std) == pytest.approx(expected)
    assert noisy_means.log_likelihood_ratio(part, 0.0) == math.inf
    assert noisy_means.log_likelihood_ratio(Contribution(0.3, 0.0, 0.0), 0.0) == 0


def test_gaussian_noise_is_rarely_called_anything_else():
    generator = np.random.default_rng(3)
    values = [
        noisy_means.normality([release(generator.standard_normal(500)) for _ in range(3)])
        for _ in range(300)
    ]
    assert np.mean(np.array(values) < 0.05) < 0.10
    laplace = [release(generator.laplace(size=2000)) for _ in range(3)]
    found = noisy_means.normality(laplace)
    assert found is not None and found < 1e-6
    assert noisy_means.normality([release(np.zeros(500))]) is None


@pytest.mark.parametrize("rounds", [1, 10, 100])
def test_the_shape_of_rounded_noise_is_judged_where_rounding_cannot_decide(rounds):
    # As coarse as three roundings allow, and every value on the same grid of unit 1.
    rounding, size = 0.5, noisy_means.FINGERPRINT
    clear = rounding * math.sqrt(noisy_means.CLEAR_OF_ROUNDING * math.sqrt(rounds * size))
    values = []
    for seed in range(20 if rounds < 100 else 5):
        generator = np.random.default_rng(seed)
        for std, kept in ((1.1 * clear, rounds), (0.9 * clear, 0)):
            seen = []
            for _ in range(rounds):
                noise = np.rint(std * generator.standard_normal(size))
                dithered = (noise + generator.uniform(-0.5, 0.5, size)).astype(np.float32)
                seen.append(
                    replace(release(noise), fingerprint=dithered, fingerprint_rounding=rounding)
                )
            assert len(noisy_means.clear_of_rounding(seen)) == kept
            values.append(noisy_means.normality(seen))
    assert values[1::2] == [None] * (len(values) // 2)
    assert min(value for value in values[::2] if value is not None) > 1e-3


def test_repeated_noise_is_found_and_independent_noise_never_accused():
    generator = np.random.default_rng(4)
    rounds = [release(generator.standard_normal(1000), t) for t in range(30)]
    assert noisy_means.repeated_noise(rounds, 0.999) == []
    rounds.append(release(3 * rounds[7].fingerprint.astype(np.float64), 30))
    assert noisy_means.repeated_noise(rounds, 0.999) == [(7, 30)]
