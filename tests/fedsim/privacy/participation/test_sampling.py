"""Every record takes part in a round by a coin of its own, which only its path decides."""

import numpy as np
import pytest
from scipy import stats

from adversaries.errors import InputError
from fedsim.common.randomness import StreamRole, generator
from fedsim.federation.server import plan
from fedsim.privacy.participation import sampling
from fedsim.privacy.participation.sampling import participation


def test_at_rate_one_nothing_is_drawn(monkeypatch):
    monkeypatch.delattr(sampling, "generator")
    assert participation(0, range(3), 1, 10, 1.0) is None


def test_a_trials_coins_do_not_depend_on_the_trials_beside_it():
    together = participation(7, range(10), 3, 50, 0.3)
    apart = [participation(7, trials, 3, 50, 0.3) for trials in (range(4), range(4, 10))]
    np.testing.assert_array_equal(together, np.concatenate(apart))


def test_a_trials_coins_are_a_random_stream_of_its_own():
    coins = participation(7, range(5, 6), 3, 50, 0.3)
    expected = generator(7, StreamRole.SAMPLING, trial=5, round=3).random(50) < 0.3
    np.testing.assert_array_equal(coins, expected[None])


def test_seed_and_round_change_the_coins():
    first = participation(0, range(4), 1, 100, 0.5)
    for seed, round in ((1, 1), (0, 2)):
        assert not np.array_equal(first, participation(seed, range(4), round, 100, 0.5))


def test_a_coin_has_the_probability_and_is_independent_of_the_others():
    rate, trials, records = 0.1, 2000, 40
    coins = participation(11, range(trials), 1, records, rate)
    assert coins is not None
    assert stats.binomtest(int(coins.sum()), coins.size, rate).pvalue > 1e-3
    # Poisson sampling: the size of a sample is binomial, not fixed.
    counts = np.bincount(coins.sum(1), minlength=records + 1)
    expected = trials * stats.binom.pmf(np.arange(records + 1), records, rate)
    observed = np.append(counts[:10], counts[10:].sum())
    assert stats.chisquare(observed, np.append(expected[:10], expected[10:].sum())).pvalue > 1e-3
    correlation = np.corrcoef(coins.T)[np.triu_indices(records, 1)]
    assert abs(correlation.std() * np.sqrt(trials) - 1) < 0.1


def test_coins_from_the_operating_system_are_not_reproducible():
    first, second = (participation(None, range(2), 1, 100, 0.5) for _ in range(2))
    assert not np.array_equal(first, second)


SYSTEM = {"privacy.noise-source": "system", "training.sampling-rate": 0.5}


def test_an_adversary_that_cannot_know_the_coins_is_refused_before_any_work(small):
    with pytest.raises(InputError, match=r'audit\.mode = "oracle"'):
        plan.check_possible(small(SYSTEM))
    plan.check_possible(small(SYSTEM | {"audit.mode": "oracle"}))
    plan.check_possible(small({"privacy.noise-source": "system"}))
