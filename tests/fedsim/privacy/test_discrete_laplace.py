"""Discrete Laplace noise: its law, against the exact probabilities, and the tails of its sums."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from fedsim.privacy import discrete_laplace


def _mass(scale, reach):
    """Return P(-reach), ..., P(reach)."""
    ratio = math.exp(-1 / scale)
    return (1 - ratio) / (1 + ratio) * ratio ** np.abs(np.arange(-reach, reach + 1))


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
def test_draws_have_the_exact_probabilities(epsilon):
    """An exact sampler fails once in 10,000 seeds."""
    below = random.Random(11).randrange
    scale = 1 / Fraction(epsilon)
    draws = np.array([discrete_laplace.draw(scale, below) for _ in range(20000)])
    reach = math.ceil(4 / epsilon)
    cells = np.clip(draws, -reach - 1, reach + 1) + reach + 1
    inner = _mass(1 / epsilon, reach)
    tail = (1 - inner.sum()) / 2
    expected = 20000 * np.array([tail, *inner, tail])
    found = np.bincount(cells, minlength=len(expected))
    assert stats.chisquare(found, expected).pvalue > 1e-4


def test_a_neighbours_count_is_at_most_e_to_the_epsilon_as_likely():
    """The ratio of the law's neighbouring probabilities is the claim itself."""
    mass = _mass(1 / 0.7, 60)
    np.testing.assert_allclose(np.max(mass[1:] / mass[:-1]), math.exp(0.7))


@pytest.mark.parametrize("terms", [1, 2, 5])
@pytest.mark.parametrize("tail", [0.2, 0.00625, 1e-5])
def test_the_tail_of_a_sum_is_that_of_its_law(terms, tail):
    scale, reach = 1.7, 80
    total = np.ones(1)
    for _ in range(terms):
        total = np.convolve(total, _mass(scale, reach))
    above = total[::-1].cumsum()[::-1] - total  # P(sum > place - reach * terms)
    least = int(np.argmax(above <= tail)) - reach * terms
    assert discrete_laplace.most(scale, terms, tail) == least
    assert discrete_laplace.most(scale, 0, tail) == 0


def test_a_tail_that_is_a_little_too_large_is_not_taken_for_rounding():
    scale, ratio = 1.7, math.exp(-1 / 1.7)
    above = ratio**9 / (1 + ratio)  # P(one draw > 8), exactly
    assert discrete_laplace.most(scale, 1, above * (1 + 1e-5)) == 8
    assert discrete_laplace.most(scale, 1, above * (1 - 1e-9)) == 9
