"""Flower's partitioners divide D as Flower itself does, and what they refuse is one line."""

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim.learning.data.partition import PARTITIONS, partition

flower = pytest.importorskip("flwr_datasets.partitioner")

LABELS = np.random.default_rng(0).integers(0, 10, 600)


def _divided(name, clients, options="", keys=False):
    persons = np.array([f"person {number % 30}" for number in range(len(LABELS))])
    scheme = f"flwr:{name}" + (f", {options}" if options else "")
    found = partition(LABELS, clients, scheme, 0.5, 3, persons if keys else None)
    return [int(client) for client in found]


def test_shards_are_of_few_classes_and_of_one_size():
    options = "num-shards-per-partition=2, shuffle=false, keep-incomplete-shard=true"
    found = np.array(_divided("shard", 20, options))
    for client in range(20):
        # A shard of 15 records, of the sorted labels, is of two classes at most.
        assert (found == client).sum() == 30
        assert len(np.unique(LABELS[found == client])) <= 4


def test_the_seed_of_the_data_is_flowers():
    first, other = (partition(LABELS, 5, "flwr:dirichlet", 0.1, seed) for seed in (1, 2))
    np.testing.assert_array_equal(first, partition(LABELS, 5, "flwr:dirichlet", 0.1, 1))
    assert (first != other).any()
    # A small alpha gives a class to few clients, a large one to all.
    even = partition(LABELS, 5, "flwr:dirichlet", 1000.0, 1)
    most = [
        np.mean([np.bincount(found[label == LABELS]).max() for label in range(10)])
        for found in (first, even)
    ]
    assert most[0] > 1.5 * most[1]


def test_every_person_is_a_client_by_natural_identity():
    found = np.array(_divided("natural-id", 30, keys=True))
    assert set(found) == set(range(30))
    assert all(len(set(found[person::30])) == 1 for person in range(30))


@pytest.mark.parametrize(
    ("name", "clients", "options", "said"),
    [
        ("pathological", 4, "", "missing .* 'num_classes_per_partition'"),
        ("pathological", 2, "num-classes-per-partition=2", "records of D without a client"),
        ("dirichlet", 4, "colour=1", "names 'colour', but .* whose options are min-partition-size"),
        ("dirichlet", 4, "shuffle", "has 'shuffle'; write name=value"),
        ("natural-id", 7, "", "makes 10 clients of these records, but federation.clients is 7"),
        ("dirichlet", 4, "min-partition-size=500", "which refuses these records: "),
    ],
)
def test_what_a_partitioner_cannot_do_is_one_line(name, clients, options, said):
    with pytest.raises(InputError, match=said) as error:
        _divided(name, clients, options)
    assert "\n" not in str(error.value)


def test_options_are_refused_where_a_scheme_has_none():
    with pytest.raises(InputError, match="but 'iid' has none; leave them out"):
        partition(LABELS, 3, "iid, shuffle=false", 0.5, 0)


def test_every_partitioner_is_one_of_flowers():
    for name in PARTITIONS:
        if name.startswith("flwr:"):
            class_name = "".join(part.capitalize() for part in name[5:].split("-")) + "Partitioner"
            assert hasattr(flower, class_name), name
