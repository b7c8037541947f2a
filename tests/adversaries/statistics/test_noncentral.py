"""Limits of noncentral t against an integral in the other order, down to the tails of alarms."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import chdtr, chdtrc
from scipy.stats import nct

from adversaries.statistics.noncentral import lower_limit, upper_limit


def _probability(statistic, freedom, noncentrality, *, above):
    """Integrate over Z what V allows, P(T >= t) = E P(V <= (Z + m)/t), or of the rest; t > 0."""

    def density(z):
        reached = max(0.0, (z + noncentrality) / statistic)
        share = (chdtr if above else chdtrc)(freedom, freedom * reached**2)
        return math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * float(share)

    pieces = np.linspace(-12, 12, 97)
    return sum(quad(density, low, high, epsabs=0, epsrel=1e-9)[0] for low, high in pairwise(pieces))


@pytest.mark.parametrize("tail", [0.025, 2.5e-4, 1e-6])
@pytest.mark.parametrize(
    ("freedom", "scale"),
    [(2, 1.0), (14, 0.5), (2, 0.58), (198, math.sqrt(2 / 100)), (199_998, math.sqrt(2 / 1e5))],
)
@pytest.mark.parametrize("effect", [0.1, 1.0, 7.0, 50.0])
def test_each_end_has_its_tail(effect, freedom, scale, tail):
    statistic = effect / scale
    low, high = lower_limit(statistic, freedom, tail), upper_limit(statistic, freedom, tail)
    missed = _probability(statistic, freedom, low, above=True)
    assert missed == pytest.approx(tail, rel=1e-6) if low else missed >= tail
    assert _probability(statistic, freedom, high, above=False) == pytest.approx(tail, rel=1e-6)
    assert low < high


@pytest.mark.parametrize("statistic", [-3.0, -0.4, 0.0, 0.4, 2.0, 9.0])
@pytest.mark.parametrize("freedom", [2, 22])
def test_the_noncentrality_is_that_of_the_noncentral_t(statistic, freedom):
    for tail in (0.05, 0.5):
        low, high = lower_limit(statistic, freedom, tail), upper_limit(statistic, freedom, tail)
        above, below = nct.sf(statistic, freedom, low), nct.cdf(statistic, freedom, high)
        assert above == pytest.approx(tail, rel=1e-6) if low else above >= tail
        assert below == pytest.approx(tail, rel=1e-6) if high else below <= tail


def test_what_is_far_below_zero_is_nothing():
    assert lower_limit(-1e9, 10, 1e-6) == upper_limit(-1e9, 10, 1e-6) == 0
