"""D, the pool and the held-out records are disjoint, and a function of the seed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adversaries.errors import InputError
from fedsim.learning.data import Dataset, Records
from fedsim.learning.data.dealing import split


def numbered(train, test=None):
    """Records whose only feature is their position; those of the test part are negative."""

    def records(values):
        return Records(values[:, None].astype(np.float32), np.zeros(len(values), dtype=np.int64))

    held_out = None if test is None else records(-1 - np.arange(test))
    return Dataset("numbered", records(np.arange(train)), held_out, 1, "tabular")


def positions(records):
    return [int(value) for value in records.features[:, 0]]


sizes = st.integers(0, 40)


@given(records=sizes, held_out=sizes, pool=sizes, spare=sizes, seed=st.integers(0, 2**64 - 1))
def test_members_pool_and_held_out_never_overlap(records, held_out, pool, spare, seed):
    dataset = numbered(records + held_out + spare)
    parts = split(dataset, records, held_out, pool, seed)
    everyone = [*parts.members, *parts.pool, *parts.held_out]
    assert len(set(everyone)) == len(everyone)
    assert set(everyone) <= set(range(len(dataset.train)))
    assert len(parts.members) == records
    assert len(parts.held_out) == held_out
    assert len(parts.pool) == (min(pool, spare) if pool else spare)


def test_the_held_out_records_are_the_authors_test_records():
    parts = split(numbered(20, test=7), records=20, held_out=7, pool=0, seed=1)
    assert sorted(positions(parts.members_records)) == list(range(20))
    assert sorted(positions(parts.held_out_records)) == list(range(-7, 0))
    assert len(parts.pool) == 0


def test_records_are_those_at_the_indices_in_their_order():
    parts = split(numbered(30), records=10, held_out=5, pool=8, seed=2)
    assert positions(parts.members_records) == parts.members.tolist()
    assert positions(parts.pool_records) == parts.pool.tolist()
    assert positions(parts.held_out_records) == parts.held_out.tolist()
    assert parts.members.dtype == parts.pool.dtype == parts.held_out.dtype == np.int64


def test_a_split_is_a_function_of_the_seed_alone():
    def members(seed):
        return split(numbered(50), records=20, held_out=10, pool=15, seed=seed)

    again, other = members(3), members(4)
    for part in ("members", "pool", "held_out"):
        np.testing.assert_array_equal(getattr(members(3), part), getattr(again, part))
        assert set(getattr(again, part)) != set(getattr(other, part))


def test_the_pool_and_the_held_out_records_do_not_change_who_is_a_member():
    few = split(numbered(50), records=20, held_out=1, pool=1, seed=5)
    many = split(numbered(50), records=20, held_out=10, pool=0, seed=5)
    np.testing.assert_array_equal(few.members, many.members)
    assert many.pool[0] == few.pool[0]


@pytest.mark.parametrize(
    ("dataset", "records", "held_out", "numbers"),
    [
        (numbered(10), 8, 3, "10 records.*data.records = 8.*data.held-out = 3"),
        (numbered(10, test=2), 11, 1, "10 training and 2 test.*data.records = 11"),
        (numbered(10, test=2), 1, 3, "10 training and 2 test.*data.held-out = 3"),
    ],
)
def test_too_few_records_are_refused_with_the_numbers(dataset, records, held_out, numbers):
    with pytest.raises(InputError, match=numbers):
        split(dataset, records, held_out, pool=0, seed=0)
