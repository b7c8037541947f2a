"""Every record has one owner, every owner a record, from the seed alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.errors import InputError
from fedsim.partition import PARTITIONS, partition

schemes = st.sampled_from(sorted(PARTITIONS))
seeds = st.integers(0, 2**63 - 1)


@settings(deadline=None)
@given(
    labels=st.lists(st.integers(0, 9), min_size=30, max_size=80),
    owners=st.integers(1, 4),
    scheme=schemes,
    seed=seeds,
)
def test_every_record_has_one_owner_and_every_owner_a_record(
    labels: list[int], owners: int, scheme: str, seed: int
) -> None:
    owner_of = partition(np.array(labels), owners, scheme, 1.0, seed)
    assert owner_of.dtype == np.int64
    assert owner_of.shape == (len(labels),)
    assert set(owner_of) == set(range(owners))


@settings(deadline=None)
@given(records=st.integers(1, 100), data=st.data(), seed=seeds)
def test_iid_owners_have_the_same_number_of_records_within_one(
    records: int, data: st.DataObject, seed: int
) -> None:
    owners = data.draw(st.integers(1, records))
    owner_of = partition(np.zeros(records, dtype=np.int64), owners, "iid", 1.0, seed)
    counts = np.bincount(owner_of, minlength=owners)
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("scheme", sorted(PARTITIONS))
def test_a_partition_is_a_function_of_the_seed_alone(scheme: str) -> None:
    labels = np.arange(200) % 10
    first = partition(labels, 3, scheme, 0.5, seed=1)
    np.random.default_rng().random()
    np.testing.assert_array_equal(first, partition(labels, 3, scheme, 0.5, seed=1))
    assert (first != partition(labels, 3, scheme, 0.5, seed=2)).any()


@pytest.mark.parametrize("alpha", [0.1, 1.0, 10.0])
def test_shares_of_a_class_have_the_moments_of_the_dirichlet_distribution(alpha: float) -> None:
    # Each of the classes is an independent draw of the shares p, and then of n records by p:
    # E[p] = 1/m, Var[p] = (m - 1)/(m^2 (m a + 1)), and sampling adds E[p (1 - p)]/n.
    owners, classes, n = 4, 3000, 100
    labels = np.repeat(np.arange(classes), n)
    owner_of = partition(labels, owners, "dirichlet", alpha, seed=0)
    counts = np.bincount(labels * owners + owner_of, minlength=classes * owners)
    shares = counts.reshape(classes, owners) / n
    variance = (owners - 1) / (owners**2 * (owners * alpha + 1))
    expected = variance + (1 / owners - 1 / owners**2 - variance) / n
    np.testing.assert_allclose(
        shares.mean(axis=0), 1 / owners, atol=5 * (expected / classes) ** 0.5
    )
    np.testing.assert_allclose(shares.var(axis=0), expected, rtol=0.15)


def test_a_draw_that_leaves_an_owner_without_a_record_is_repeated() -> None:
    # One class of 6 records to 3 owners at alpha .3: about half of the draws leave someone out.
    partitions = [partition(np.zeros(6, np.int64), 3, "dirichlet", 0.3, s) for s in range(50)]
    assert all(set(owner_of) == {0, 1, 2} for owner_of in partitions)


def test_a_skew_that_cannot_give_every_owner_a_record_is_refused_with_the_way_out() -> None:
    with pytest.raises(InputError, match=r"dirichlet-alpha = 1e-06.*raise it or data.records"):
        partition(np.zeros(1000, dtype=np.int64), 20, "dirichlet", 1e-6, seed=0)


@pytest.mark.parametrize("scheme", sorted(PARTITIONS))
def test_more_owners_than_records_are_refused(scheme: str) -> None:
    with pytest.raises(InputError, match=r"3 records cannot give each of 4 owners one"):
        partition(np.zeros(3, dtype=np.int64), 4, scheme, 1.0, seed=0)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan")])
def test_a_concentration_that_is_not_positive_is_refused(alpha: float) -> None:
    with pytest.raises(InputError, match="dirichlet-alpha"):
        partition(np.zeros(9, dtype=np.int64), 3, "dirichlet", alpha, seed=0)


def test_an_unknown_scheme_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match=r"'dirichelt'.*did you mean 'dirichlet'"):
        partition(np.zeros(9, dtype=np.int64), 3, "dirichelt", 1.0, seed=0)
    with pytest.raises(InputError, match="there are iid, dirichlet"):
        partition(np.zeros(9, dtype=np.int64), 3, "zzz", 1.0, seed=0)
