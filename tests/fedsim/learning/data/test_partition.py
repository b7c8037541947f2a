"""Every record has one client, every client a record, from the seed alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adversaries.errors import InputError
from fedsim.learning.data.partition import FLOWER, PARTITIONS, partition

OURS = sorted(name for name in PARTITIONS if not name.startswith(FLOWER))
schemes = st.sampled_from(OURS)
seeds = st.integers(0, 2**63 - 1)


@given(
    labels=st.lists(st.integers(0, 9), min_size=30, max_size=80),
    clients=st.integers(1, 4),
    scheme=schemes,
    seed=seeds,
)
def test_every_record_has_one_client_and_every_client_a_record(labels, clients, scheme, seed):
    keys = np.arange(len(labels)) // 3
    client_of = partition(np.array(labels), clients, scheme, 1.0, seed, keys)
    assert client_of.dtype == np.int64
    assert client_of.shape == (len(labels),)
    assert set(client_of) == set(range(clients))


@given(records=st.integers(1, 100), data=st.data(), seed=seeds)
def test_iid_clients_have_the_same_number_of_records_within_one(records, data, seed):
    clients = data.draw(st.integers(1, records))
    client_of = partition(np.zeros(records, dtype=np.int64), clients, "iid", 1.0, seed)
    counts = np.bincount(client_of, minlength=clients)
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("scheme", OURS)
def test_a_partition_is_a_function_of_the_seed_alone(scheme):
    labels = np.arange(200) % 10
    keys = np.arange(200) // 5
    first = partition(labels, 3, scheme, 0.5, 1, keys)
    np.random.default_rng().random()
    np.testing.assert_array_equal(first, partition(labels, 3, scheme, 0.5, 1, keys))
    assert (first != partition(labels, 3, scheme, 0.5, 2, keys)).any()


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("iid", [0, 2, 1, 0, 2, 0, 2, 1, 1, 1, 0, 2]),
        ("dirichlet", [2, 0, 1, 2, 1, 1, 2, 1, 1, 2, 2, 1]),
    ],
)
def test_partitions_of_earlier_runs_stay_as_they_were(scheme, expected):
    client_of = partition(np.arange(12) % 3, 3, scheme, 0.5, seed=7)
    assert client_of.tolist() == expected


@given(
    keys=st.lists(st.sampled_from("abcdefgh"), min_size=8, max_size=60),
    seed=seeds,
    data=st.data(),
)
def test_no_value_of_a_key_is_split_and_sizes_differ_by_at_most_the_commonest(keys, seed, data):
    column = np.array(keys)
    values, counts = np.unique(column, return_counts=True)
    clients = data.draw(st.integers(1, len(values)))
    client_of = partition(np.zeros(len(keys), np.int64), clients, "key", 1.0, seed, column)
    assert all(len(set(client_of[column == value])) == 1 for value in values)
    sizes = np.bincount(client_of, minlength=clients)
    assert sizes.min() >= 1
    assert np.ptp(sizes) <= counts.max()


def test_as_many_clients_as_persons_get_a_person_each():
    persons = np.repeat([7, 3, 5], [1, 4, 2])
    client_of = partition(np.zeros(7, np.int64), 3, "key", 1.0, 0, persons)
    assert sorted(np.bincount(client_of)) == [1, 2, 4]


def test_missing_values_of_a_key_are_one_value():
    ages = np.array([np.nan, 31.0, np.nan, 45.0])
    client_of = partition(np.zeros(4, np.int64), 3, "key", 1.0, 0, ages)
    assert client_of[0] == client_of[2]


@pytest.mark.parametrize("alpha", [0.1, 1.0, 10.0])
def test_quantities_have_the_moments_of_the_dirichlet_distribution(alpha):
    # Sizes are 1 + Multinomial(n - m, p) with shares p as above, drawn once for each seed.
    clients, records, seeds = 4, 100, 2000
    rest = records - clients
    sizes = np.array(
        [
            np.bincount(partition(np.zeros(records, np.int64), clients, "quantity", alpha, seed))
            for seed in range(seeds)
        ]
    )
    variance = (clients - 1) / (clients**2 * (clients * alpha + 1))
    expected = rest**2 * variance + rest * (1 / clients - 1 / clients**2 - variance)
    np.testing.assert_allclose(
        sizes.mean(axis=0), records / clients, atol=5 * (expected / seeds) ** 0.5
    )
    np.testing.assert_allclose(sizes.var(axis=0), expected, rtol=0.15)


def test_quantities_say_nothing_about_labels():
    # A random set of n_j of the records: the share of a label has a hypergeometric variance.
    labels = np.arange(60) % 2
    deviations = []
    for seed in range(1000):
        client_of = partition(labels, 3, "quantity", 1.0, seed)
        n = np.bincount(client_of)
        ones = np.bincount(client_of, weights=labels)
        spread = np.sqrt(n * (60 - n) / (4 * 59))
        deviations += list(((ones - n / 2) / spread)[:2])
    assert abs(np.mean(deviations)) < 5 / 2000**0.5
    assert np.var(deviations) == pytest.approx(1, abs=0.15)


def test_the_smallest_concentration_gives_one_client_all_but_a_record_for_each_other():
    client_of = partition(np.zeros(1000, np.int64), 20, "quantity", 1e-9, seed=0)
    assert sorted(np.bincount(client_of)) == [1] * 19 + [981]


def test_a_key_with_fewer_values_than_clients_is_refused():
    with pytest.raises(InputError, match=r"has 2 values in D, too few for 3 clients"):
        partition(np.zeros(4, np.int64), 3, "key", 1.0, 0, np.array(["a", "b", "a", "b"]))


def test_a_key_that_nobody_named_is_refused():
    with pytest.raises(InputError, match=r"set federation.partition-key"):
        partition(np.zeros(4, np.int64), 3, "key", 1.0, 0)


@pytest.mark.parametrize("alpha", [0.1, 1.0, 10.0])
def test_shares_of_a_class_have_the_moments_of_the_dirichlet_distribution(alpha):
    # Each of the classes is an independent draw of the shares p, and then of n records by p:
    # E[p] = 1/m, Var[p] = (m - 1)/(m^2 (m a + 1)), and sampling adds E[p (1 - p)]/n.
    clients, classes, n = 4, 3000, 100
    labels = np.repeat(np.arange(classes), n)
    client_of = partition(labels, clients, "dirichlet", alpha, seed=0)
    counts = np.bincount(labels * clients + client_of, minlength=classes * clients)
    shares = counts.reshape(classes, clients) / n
    variance = (clients - 1) / (clients**2 * (clients * alpha + 1))
    expected = variance + (1 / clients - 1 / clients**2 - variance) / n
    np.testing.assert_allclose(
        shares.mean(axis=0), 1 / clients, atol=5 * (expected / classes) ** 0.5
    )
    np.testing.assert_allclose(shares.var(axis=0), expected, rtol=0.15)


def test_a_draw_that_leaves_a_client_without_a_record_is_repeated():
    # One class of 6 records to 3 clients at alpha .3: about half of the draws leave someone out.
    partitions = [partition(np.zeros(6, np.int64), 3, "dirichlet", 0.3, s) for s in range(50)]
    assert all(set(client_of) == {0, 1, 2} for client_of in partitions)


def test_a_skew_that_cannot_give_every_client_a_record_is_refused_with_the_way_out():
    with pytest.raises(InputError, match=r"dirichlet-alpha = 1e-06.*raise it or data.records"):
        partition(np.zeros(1000, dtype=np.int64), 20, "dirichlet", 1e-6, seed=0)


@pytest.mark.parametrize("scheme", OURS)
def test_more_clients_than_records_are_refused(scheme):
    with pytest.raises(InputError, match=r"3 records cannot give each of 4 clients one"):
        partition(np.zeros(3, dtype=np.int64), 4, scheme, 1.0, seed=0)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan")])
def test_a_concentration_that_is_not_positive_is_refused(alpha):
    with pytest.raises(InputError, match="dirichlet-alpha"):
        partition(np.zeros(9, dtype=np.int64), 3, "dirichlet", alpha, seed=0)


def test_an_unknown_scheme_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match=r"'dirichelt'.*did you mean 'dirichlet'"):
        partition(np.zeros(9, dtype=np.int64), 3, "dirichelt", 1.0, seed=0)
    with pytest.raises(InputError, match="give one of iid, dirichlet, quantity, key"):
        partition(np.zeros(9, dtype=np.int64), 3, "zzz", 1.0, seed=0)
