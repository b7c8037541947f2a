"""Each setting has its rule, and the rule answers every question about participation."""

import numpy as np
import pytest

from fedsim.privacy.participation import sampling
from fedsim.privacy.participation.histories import histories, most_together
from fedsim.privacy.participation.rule import ALL_CLIENTS, Participation

CLIENT_OF = np.arange(24) % 4


def _setting(**changes):
    units = 4 if changes.get("by_client") else 24
    return Participation(**({"clients": 4, "units": units, "seed": 3} | changes))


@pytest.mark.parametrize(
    ("changes", "rate", "joining_rate", "divisor"),
    [
        ({}, 1, 1, 24),
        ({"by_client": True, "record_rate": 0.5}, 1, 1, 4),
        ({"record_rate": 0.25}, 0.25, 1, 6),
        ({"by_client": True, "client_rate": 0.5}, 0.5, 1, 2),
        ({"client_rate": 0.5}, 1, 0.5, 12),
        ({"client_rate": 0.5, "record_rate": 0.25}, 0.25, 0.5, 3),
        (
            {"by_client": True, "client_rate": 0.5, "server_draws": False},
            1,
            0.5,
            2,
        ),
    ],
)
def test_a_setting_has_one_rule_with_its_rates(changes, rate, joining_rate, divisor):
    found = _setting(**changes)
    assert (found.rate, found.joining_rate, found.divisor) == (rate, joining_rate, divisor)
    assert found.secret == (rate < 1)
    assert found.varying == (joining_rate < 1)
    assert found.hidden == (rate < 1 and changes.get("by_client", False))


def test_hidden_clients_are_charged_alike_and_each_trial_has_the_targets_own_coin():
    found = _setting(by_client=True, client_rate=0.5)
    assert found.charged(2) == (ALL_CLIENTS,) == (found.account_of(1),)
    coins = found.coins(range(50), 2, 1, 1, CLIENT_OF)
    assert coins is not None
    assert 0 < coins[:, 1].mean() < 1
    assert (np.delete(coins, 1, axis=1) == np.delete(coins, 1, axis=1)[0]).all()
    others = set(np.flatnonzero(coins[0]).tolist()) - {1}
    assert set(found.asked(range(50), 2, 1, 0)) == others | {0, 1}


def test_joining_clients_alone_are_charged_and_their_records_drawn():
    found = _setting(client_rate=0.5, record_rate=0.5, local_steps=2)
    joined = tuple(np.flatnonzero(sampling.joined(3, 5, 4, 0.5)).tolist())
    assert found.charged(5) == found.participants(5) == joined
    coins = found.coins(range(2), 5, 2, 0, CLIENT_OF)
    own = sampling.participation(3, range(2), found.step_number(5, 2), 24, 0.5)
    np.testing.assert_array_equal(coins, own & np.isin(CLIENT_OF, joined))


def test_the_shares_of_noise_are_of_the_clients_that_join_and_may_not_be_missing():
    by_client = {"by_client": True, "server_draws": False, "client_rate": 0.5, "missing": 1}
    found = _setting(**by_client)
    sizes = [len(found.participants(round)) for round in range(1, 9)]
    assert [found.shares(round) for round in range(1, 9)] == [max(1, size - 1) for size in sizes]
    assert most_together(found, 8) == max(sizes)
    joins = [sum(client in found.participants(i) for i in range(1, 9)) for client in range(4)]
    assert max(sum(count for _, count in each) for each in histories(found, 8)) == max(joins)
