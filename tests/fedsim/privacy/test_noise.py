"""The noise that the server adds has its standard deviation, and is new in every draw."""

import numpy as np
import pytest

from fedsim.privacy.noise import add_noise

SIZE = 10_000


def _noised(clean, stds=(1.0, 1.0), *, round=1, numbers=(0, 1), seed=7):
    """Return a copy of a sum with noise."""
    return add_noise(clean.copy(), np.array(stds), seed, numbers, round)


@pytest.fixture
def clean():
    return np.random.default_rng(3).standard_normal((2, SIZE))


@pytest.mark.parametrize("seed", [7, None])
def test_noise_has_its_standard_deviation_in_every_trial(clean, seed):
    stds = np.array([0.5, 20.0])
    noise = _noised(clean, (0.5, 20.0), seed=seed).noise
    assert noise is not None
    # Six standard errors of a mean and of a standard deviation.
    error = 6 / np.sqrt(SIZE)
    np.testing.assert_allclose(noise.std(axis=1), stds, rtol=error)
    assert (np.abs(noise.mean(axis=1)) < error * stds).all()


def test_noise_is_what_the_total_gained(clean):
    found = _noised(clean, (0.5, 20.0))
    assert found.noise is not None
    np.testing.assert_array_equal(found.total, clean + found.noise)


def test_a_trial_has_the_same_bits_wherever_its_stream_stands_in_a_batch(clean):
    found = _noised(clean[[1, 0]], numbers=(1, 0))
    np.testing.assert_array_equal(found.total[[1, 0]], _noised(clean).total)


def test_no_round_stream_or_seed_has_the_noise_of_another():
    zero = np.zeros((2, SIZE))
    drawn = [
        *_noised(zero, round=1).total,
        *_noised(zero, round=2).total,
        *_noised(zero, seed=8).total,
        *_noised(zero, seed=None).total,
        *_noised(zero, seed=None).total,
    ]
    correlations = np.corrcoef(drawn)[~np.eye(len(drawn), dtype=bool)]
    assert (np.abs(correlations) < 6 / np.sqrt(SIZE)).all()
