"""Intervals of true-positive rates hold the truth, all together, ties or not."""

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from adversaries.errors import InputError
from adversaries.statistics.intervals import binomial_low
from adversaries.statistics.true_rates import true_rates

RATES = (0.1, 0.01)


def covered(games, trials, decimals):
    """Count the games whose intervals all hold Phi(Phi^-1(rate) + mu)."""
    generator, mu, held = np.random.default_rng(0), 1.0, 0
    for _ in range(games):
        worlds = generator.random(trials) < 0.5
        scores = mu * worlds + generator.standard_normal(trials)
        if decimals is not None:
            scores = np.round(scores, decimals)
        found = true_rates(worlds, scores, RATES, 0.9)
        truths = ndtr(ndtri(np.array(RATES)) + mu)
        pairs = zip(found, truths, strict=True)
        held += all(
            each.interval is None or each.interval.low <= truth <= each.interval.high
            for each, truth in pairs
        )
    return held


@pytest.mark.parametrize("decimals", [None, 1])
def test_all_intervals_together_hold_as_often_as_they_say(decimals):
    """Refused only if 500 games would show less than 90 % in one of 10,000 tests."""
    held = covered(500, 2000, decimals)
    assert binomial_low(500 - held, 500, 1e-4) <= 0.1


def test_more_trials_give_shorter_intervals_around_the_truth():
    generator = np.random.default_rng(1)
    lengths = []
    for trials in (2_000, 200_000):
        worlds = generator.random(trials) < 0.5
        (found,) = true_rates(worlds, worlds + generator.standard_normal(trials), (0.1,), 0.95)
        assert found.interval is not None
        lengths.append(found.interval.high - found.interval.low)
    assert lengths[1] < lengths[0] / 8
    truth = ndtr(ndtri(0.1) + 1)
    assert found.interval.low < truth < found.interval.high


def test_too_few_trials_say_how_many_it_takes():
    worlds = np.arange(400) % 2 == 0
    scores = np.random.default_rng(2).standard_normal(400)
    coarse, fine = true_rates(worlds, scores, (0.1, 0.001), 0.95)
    assert coarse.interval is not None
    assert fine.interval is None
    assert fine.needed == 5073  # ln(0.05 / 8) / ln(1 - 0.001)
    again = np.repeat(worlds, 26), np.random.default_rng(3).standard_normal(400 * 26)
    assert true_rates(*again, (0.1, 0.001), 0.95)[1].interval is not None


def test_one_world_and_rates_out_of_range():
    worlds = np.ones(50, bool)
    (found,) = true_rates(worlds, np.zeros(50), (0.1,), 0.95)
    assert found.interval is None
    with pytest.raises(InputError, match="give numbers between 0 and 1"):
        true_rates(worlds, np.zeros(50), (0.0,), 0.95)
