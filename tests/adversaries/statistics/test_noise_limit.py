"""How much noise there is at most, whatever it hides: neither a false alarm nor a miss."""

import math

import numpy as np
import numpy.typing as npt
import pytest

from adversaries.statistics.noise_limit import COORDINATES, NoiseLimit

Floats = npt.NDArray[np.float64]

SIZE, ROUNDS = 300, 6


def _trained(round, past, rng):
    """Return sums as training has them: few coordinates are large, and shrink round by round."""
    return np.where(np.arange(SIZE) < 200, 30.0 * np.sin(np.arange(SIZE)) * 0.9**round, 0.0)


def _against_the_noise(round, past, rng):
    """Return the worst that a model may do: undo the noise of the round before."""
    return -past[-1] if past else np.zeros(SIZE)


def _none(round, past, rng):
    return np.zeros(SIZE)


def _released(std, signal, seed):
    rng, past = np.random.default_rng(seed), list[Floats]()
    for round in range(ROUNDS):
        past.append(signal(round, past, rng) + std * rng.standard_normal(SIZE))
    return past


def _limit(releases, confidence=0.9999, claimed=2.0):
    found = NoiseLimit()
    for each in releases:
        found.observe(each, claimed)
    return found.limit(confidence)


@pytest.mark.parametrize("signal", [_none, _trained, _against_the_noise])
def test_honest_noise_is_seldom_refuted_whatever_it_hides(signal):
    # At a confidence of .8 one of five may be, and e-processes refute fewer.
    refuted = [_limit(_released(2.0, signal, seed), 0.8) <= 1 for seed in range(60)]
    assert sum(refuted) < 12


@pytest.mark.parametrize("signal", [_none, _trained])
def test_half_of_the_noise_is_refuted(signal):
    assert all(0.5 < _limit(_released(1.0, signal, seed)) < 0.8 for seed in range(8))
    assert all(1 < _limit(_released(2.0, signal, seed)) < 1.5 for seed in range(8))


def test_a_limit_found_once_stays_and_needs_no_scale():
    found, seen = NoiseLimit(), list[float]()
    for each in _released(1e-3, _trained, 1)[:4]:
        found.observe(1e-3 * each, 1e-6)
        seen.append(found.limit(0.999))
    assert seen == sorted(seen, reverse=True)
    scaled = NoiseLimit()
    for each in _released(1e-3, _trained, 1)[:4]:
        scaled.observe(1e6 * each, 1e3)
    assert scaled.limit(0.999) == seen[-1]


def test_sums_that_are_all_signal_say_nothing():
    rng = np.random.default_rng(3)
    assert _limit([1e6 * rng.standard_normal(SIZE) for _ in range(ROUNDS)]) == math.inf
    # Nor does a claim of no noise.
    assert _limit([np.ones(SIZE)], claimed=0.0) == math.inf


def test_large_models_are_thinned_evenly():
    rng = np.random.default_rng(4)
    whole = [rng.standard_normal(3 * COORDINATES) for _ in range(2)]
    assert _limit(whole, claimed=1.0) == _limit([each[::3] for each in whole], claimed=1.0)
