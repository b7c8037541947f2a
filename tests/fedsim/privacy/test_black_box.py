"""Noise for a black box, against mechanisms whose law is known."""

import math

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim.privacy import black_box
from fedsim.privacy.black_box import BlackBoxNoise
from fedsim.privacy.pac import Floats

DEVIATIONS = np.array([3.0, 1.0, 0.3, 0.1])
"""Of a mechanism's result along four axes."""


def _noise(seed: int, budget: float = 1.0, count: int = 600) -> tuple[BlackBoxNoise, Floats]:
    return black_box.privatise(
        lambda data, coins: data,
        lambda coins: DEVIATIONS * coins.standard_normal(4) + 7,
        black_box.generators(seed, count),
        budget,
        confidence=0.9,
    )


def test_the_noise_of_a_known_law_is_near_the_least_and_keeps_its_budget_as_often_as_stated() -> (
    None
):
    kept, sizes = [], []
    for seed in range(100):
        noise, _ = _noise(seed)
        # What fresh results are told, exactly enough: 1/2 E of their standardised squares.
        fresh = np.random.default_rng(10_000 + seed).standard_normal((4000, 4)) * DEVIATIONS + 7
        told = noise.squared_lengths(noise.coordinates(fresh)).mean() / 2
        kept.append(told <= noise.budget)
        sizes.append(noise.size)
    # At least 90 % of simulations, but for three standard errors of a hundred.
    assert np.mean(kept) >= 0.9 - 3 * math.sqrt(0.09 / 100)
    least = DEVIATIONS.sum() / math.sqrt(2)
    assert least < np.mean(sizes) < 1.4 * least


def test_more_simulations_bring_the_noise_near_the_closed_form() -> None:
    noise, _ = _noise(1, budget=0.25, count=20_000)
    assert noise.size == pytest.approx(DEVIATIONS.sum() / math.sqrt(0.5), rel=0.1)


def test_what_is_released_has_the_noise_that_was_stated_and_stays_in_the_ellipsoid() -> None:
    noise, _ = _noise(2)
    coins = np.random.default_rng(3)
    drawn = np.stack([black_box.release(noise, np.full(4, 7.0), coins) for _ in range(4000)])
    along = (drawn - drawn.mean(0)) @ noise.directions.T
    assert along.var(0) == pytest.approx(noise.variances, rel=0.1)
    # A result that no simulation came near tells no more than the limit allows.
    far = np.full(4, 1e9)
    centre = np.stack([black_box.release(noise, far, coins) for _ in range(4000)]).mean(0)
    told = (noise.coordinates(centre) ** 2 / noise.variances).sum()
    assert told == pytest.approx(noise.limit, rel=0.2)


def test_what_no_simulation_moved_is_not_released() -> None:
    noise, _ = black_box.privatise(
        lambda data, coins: [data[0], 0.0, 5.0],
        lambda coins: coins.standard_normal(1),
        black_box.generators(4, 100),
        1.0,
    )
    # The second number depends on nothing that was simulated: a secret in it stays there.
    out = black_box.release(noise, [0.1, 99.0, 5.0], np.random.default_rng(5))
    assert out[1:] == pytest.approx([0.0, 5.0], abs=1e-9)


@pytest.mark.parametrize(
    ("mechanism", "said"),
    [
        (lambda data, coins: [1.0, 2.0], "every simulated result is the same"),
        (lambda data, coins: [math.nan], "not finite"),
        (lambda data, coins: "words", "not an array of numbers"),
    ],
)
def test_a_mechanism_that_gives_nothing_to_learn_is_refused(
    mechanism: black_box.Mechanism[float], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        black_box.privatise(
            mechanism, lambda coins: coins.random(), black_box.generators(1, 40), 1.0
        )


def test_a_result_of_another_length_is_refused() -> None:
    noise, _ = _noise(6)
    with pytest.raises(InputError, match="returned 5 numbers, but 4 in simulation"):
        black_box.release(noise, np.ones(5), np.random.default_rng(1))
