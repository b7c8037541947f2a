"""Every record takes part in a round by a coin of its own, which only its path decides."""

import numpy as np
import pytest
from scipy import stats

from adversaries.errors import InputError
from fedsim.common.randomness import StreamRole, generator
from fedsim.federation.server import plan
from fedsim.privacy.participation import sampling
from fedsim.privacy.participation.sampling import groups, participation


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


def test_a_trials_groups_do_not_depend_on_the_trials_beside_it():
    together = groups(7, range(10), 3, 1, 50, 8, 2)
    apart = [groups(7, trials, 3, 1, 50, 8, 2) for trials in (range(4), range(4, 10))]
    np.testing.assert_array_equal(together, np.concatenate(apart))


def test_seed_round_client_and_trial_change_the_groups():
    first = groups(0, range(4), 1, 0, 100, 8, 2)
    others = [groups(1, range(4), 1, 0, 100, 8, 2), groups(0, range(4), 2, 0, 100, 8, 2)]
    others += [groups(0, range(4), 1, 1, 100, 8, 2), groups(None, range(4), 1, 0, 100, 8, 2)]
    for other in others:
        assert not np.array_equal(first, other)
    assert len(np.unique(first.reshape(4, -1), axis=0)) == 4


@pytest.mark.parametrize(
    ("records", "members", "expected"), [(50, 2, 8), (50, 1, 8), (9, 2, 4), (5, 1, 5), (1, 2, 0)]
)
def test_groups_share_no_record_and_there_are_no_more_than_the_records_allow(
    records, members, expected
):
    drawn = groups(0, range(30), 1, 0, records, 8, members)
    assert drawn.shape == (30, expected, members)
    for trial in drawn.reshape(30, -1):
        assert len(set(trial)) == len(trial)
        assert set(trial) <= set(range(records))


def test_every_record_is_drawn_as_often_as_any_other():
    drawn = groups(0, range(4000), 1, 0, 10, 2, 2)
    counts = np.bincount(drawn.ravel(), minlength=10)
    assert stats.chisquare(counts).pvalue > 1e-3
