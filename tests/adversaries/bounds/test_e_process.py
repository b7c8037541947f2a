"""Evidence that is valid whenever one looks: neither a false alarm nor a miss."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from adversaries.bounds import e_process
from adversaries.bounds.e_process import Accusations, closed
from adversaries.bounds.lower_bounds import clopper_pearson_bound
from adversaries.errors import InputError
from adversaries.statistics.gaussian import mu_of_epsilon
from adversaries.statistics.trials import Bools, Floats

LOOKS = range(20, 401, 20)


def _campaigns(mu: float, campaigns: int, seed: int = 0) -> tuple[Bools, Floats]:
    """Return worlds and log-odds [campaigns, trials] of a Gaussian mechanism."""
    rng = np.random.default_rng(seed)
    worlds = rng.random((campaigns, LOOKS[-1])) < 0.5
    return worlds, mu * (worlds - 0.5) + rng.standard_normal(worlds.shape)


def _ever(worlds: Bools, log_odds: Floats, curve: e_process.Curve, alpha: float) -> float:
    """Return the share of campaigns in which the curve is refuted at any of the looks."""
    accused, ever = log_odds > 0, np.zeros(len(worlds), bool)
    for trials in LOOKS:
        on_d, now = worlds[:, :trials], accused[:, :trials]
        counts = ((on_d & now).sum(1), on_d.sum(1), (~on_d & now).sum(1), (~on_d).sum(1))
        for place, each in enumerate(zip(*(count.tolist() for count in counts), strict=True)):
            ever[place] |= Accusations(*each).log_e(curve) >= -math.log(alpha)
    return float(ever.mean())


@pytest.mark.parametrize(("trials", "most"), [(1, 0.3), (7, 0.5), (40, 0.9)])
def test_bets_are_fair_at_the_hypothesis_and_lose_below(trials: int, most: float) -> None:
    counts = np.arange(trials + 1)
    values = np.exp([float(e_process._log_e(k, trials, np.array([most]))[0]) for k in counts])
    assert binom.pmf(counts, trials, most) @ values == pytest.approx(1, rel=1e-9)
    assert binom.pmf(counts, trials, most - 0.05) @ values < 1


def test_the_least_product_is_bounded_from_below_and_closely() -> None:
    curve = e_process._private(1.0, 1e-3)
    rates = np.linspace(0, 1, 20_001)
    for counts in ((90, 100, 20, 110), (5, 60, 0, 40), (30, 30, 1, 40)):
        found = Accusations(*counts)
        true = e_process._log_e(found.true, found.on_d, curve(rates))
        false = e_process._log_e(found.others - found.false, found.others, 1 - rates)
        least = float((true + false).min())
        assert least - 0.05 < found.log_e(curve) <= least + 1e-9


def test_whoever_looks_often_is_wrong_no_more_often_than_alpha() -> None:
    mu = 0.8
    worlds, log_odds = _campaigns(mu, 60)
    wrong = _ever(worlds, log_odds, lambda rates: ndtr(ndtri(rates) + mu), 0.2)
    assert wrong <= 0.2 + 3 * math.sqrt(0.2 * 0.8 / 60)
    # Half of the noise: twice the mu.
    worlds, log_odds = _campaigns(2 * mu, 15)
    assert _ever(worlds, log_odds, lambda rates: ndtr(ndtri(rates) + mu), 1e-3) >= 0.8


def test_a_bound_that_holds_always_is_less_than_one_that_holds_once() -> None:
    (worlds,), (log_odds,) = _campaigns(mu_of_epsilon(8.0, 1e-5), 1)
    always = e_process.betting_bound(worlds, log_odds, 1e-5, 0.95)
    once = clopper_pearson_bound(worlds, log_odds, 1e-5, 0.95)
    assert 0.6 * once.epsilon < always.epsilon < once.epsilon
    mu = e_process.betting_mu(worlds, log_odds, 0.95)
    assert 0.7 < mu / mu_of_epsilon(8.0, 1e-5) < 1
    # What is said to be refuted is, and nothing much above it.
    counts = e_process.Accusations.of(worlds, log_odds)
    for value, refuted in ((always.epsilon, True), (always.epsilon + 1e-4, False)):
        log_e = counts.log_e(e_process._private(value, 1e-5))
        assert (log_e >= math.log(20)) == refuted


def test_the_interval_of_the_advantage_is_that_of_either_sign() -> None:
    (worlds,), (log_odds,) = _campaigns(1.0, 1)
    log_odds[:4] = 1e-9
    found = e_process.advantage_interval(worlds, log_odds, 0.95)
    mirrored = e_process.advantage_interval(worlds, -log_odds, 0.95)
    assert found.low < 2 * ndtr(0.5) - 1 < found.high
    assert 0.15 < found.high - found.low < 0.45
    assert (mirrored.low, mirrored.high) == pytest.approx((-found.high, -found.low), abs=2e-4)


def test_trials_of_one_world_and_bad_input() -> None:
    one = e_process.betting_bound(np.ones(9, bool), np.ones(9), 1e-5, 0.95)
    assert (one.epsilon, one.reason) == (0, "trials of one world only")
    with pytest.raises(InputError, match="delta is 1"):
        e_process.betting_bound(np.ones(9, bool), np.ones(9), 1.0, 0.95)


def test_closing_is_the_least_average_over_all_groups() -> None:
    values = np.random.default_rng(2).normal(0, 4, 6)
    for size in range(1, 7):
        among = values[:size]
        groups = [
            group
            for count in range(1, size + 1)
            for group in itertools.combinations(range(size), count)
        ]
        expected = [
            min(np.log(np.exp(among[list(g)]).mean()) for g in groups if one in g)
            for one in range(size)
        ]
        np.testing.assert_allclose(closed(among), expected, rtol=1e-12, atol=1e-12)


def test_averages_accuse_sooner_than_shares_of_the_significance() -> None:
    log_e = np.array([9.0, 9.5, 12.0])
    alone = log_e - math.log(3)  # what each has left where a third of alpha is its own
    assert (closed(log_e) >= alone).all()
    assert closed(log_e)[0] > alone[0] + 0.9
    # Beside those that show nothing nobody gains.
    assert closed(np.array([0.0, 0.0, 12.0]))[2] == pytest.approx(12 - math.log(3), abs=1e-4)
