"""Partitions of D: which client has which record."""

import heapq
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Ints
from adversaries.errors import InputError
from adversaries.registry import lookup
from fedsim.learning.data.dataset import Division

REDRAWS = 100
"""Number of draws after which a partition that leaves a client without a record is refused."""


def _iid(division: Division, generator: np.random.Generator) -> Ints:
    """Deal the records like cards: sizes differ by at most one."""
    return generator.permutation(np.arange(len(division.labels)) % division.clients)


def _dirichlet(division: Division, generator: np.random.Generator) -> Ints:
    """Draw each class's shares from Dirichlet(alpha), and its records' clients from those shares.

    Source: Yurochkin et al. (2019), Bayesian nonparametric federated learning, section 4.
    """
    classes, class_of = np.unique(division.labels, return_inverse=True)
    shares = generator.dirichlet(np.full(division.clients, division.alpha), size=len(classes))
    upper = shares.cumsum(axis=1)[:, :-1]
    above = generator.random((len(division.labels), 1)) >= upper[class_of]
    return above.sum(axis=1, dtype=np.int64)


def _quantity(division: Division, generator: np.random.Generator) -> Ints:
    """Draw the clients' shares of all records from Dirichlet(alpha), for any labels.

    Source: Li et al. (2022), Federated learning on non-IID data silos, "quantity skew".
    """
    shares = generator.dirichlet(np.full(division.clients, division.alpha))
    sizes = 1 + generator.multinomial(len(division.labels) - division.clients, shares)
    return generator.permutation(np.repeat(np.arange(division.clients), sizes))


def _key(division: Division, generator: np.random.Generator) -> Ints:
    """Give each value's records in random order to the first client with the fewest so far."""
    if division.keys is None:
        raise InputError(
            "federation.partition is 'key', but no column is named; set federation.partition-key"
        )
    values, value_of, counts = np.unique(division.keys, return_inverse=True, return_counts=True)
    if len(values) < division.clients:
        raise InputError(
            f"the column of federation.partition-key has {len(values)} values in D, too few for "
            f"{division.clients} clients, because a value is never split; lower federation.clients "
            "or name another column"
        )
    holder = np.empty(len(values), dtype=np.int64)
    held = [(0, client) for client in range(division.clients)]
    for value in generator.permutation(len(values)):
        records, client = held[0]
        holder[value] = client
        heapq.heapreplace(held, (records + int(counts[value]), client))
    return holder[value_of]


FLOWER = "flwr:"
"""Prefix of the names of Flower's partitioners."""

FLOWER_PARTITIONERS = {
    "iid": "IidPartitioner",
    "dirichlet": "DirichletPartitioner",
    "pathological": "PathologicalPartitioner",
    "shard": "ShardPartitioner",
    "continuous": "ContinuousPartitioner",
    "linear": "LinearPartitioner",
    "square": "SquarePartitioner",
    "exponential": "ExponentialPartitioner",
    "natural-id": "NaturalIdPartitioner",
    "grouped-natural-id": "GroupedNaturalIdPartitioner",
}
"""Flower's classes by the name that follows flwr: in a scheme."""


def _by_flower(made: str, division: Division, generator: np.random.Generator) -> Ints:
    from fedsim.learning.data import flower_partition  # noqa: PLC0415  (few federations need it)

    return flower_partition.divide(made, division, generator)


Scheme = Callable[[Division, np.random.Generator], Ints]
PARTITIONS: dict[str, Scheme] = {
    "iid": _iid,
    "dirichlet": _dirichlet,
    "quantity": _quantity,
    "key": _key,
    **{f"{FLOWER}{name}": partial(_by_flower, made) for name, made in FLOWER_PARTITIONERS.items()},
}


def partition(
    labels: Ints,
    clients: int,
    scheme: str,
    alpha: float,
    seed: int,
    keys: npt.NDArray[Any] | None = None,
) -> Ints:
    """Return the client of each record, int64 [n] in 0..clients-1, from the seed alone.

    Args:
        labels: int64 [n].
        clients: number of clients.
        scheme: a key of `PARTITIONS`; a partitioner of Flower with ", name=value" for each option.
        alpha: concentration of "dirichlet" and "quantity", above 0; other schemes ignore it.
        seed: of the data.
        keys: [n], which "key" and Flower's partitioners divide by; None: these use the labels.

    Raises InputError if the scheme is unknown, or no draw gives every client a record.
    """
    name, _, options = scheme.partition(",")
    draw_clients = lookup(PARTITIONS, name.strip(), "federation.partition")
    if not 1 <= clients <= len(labels):
        raise InputError(
            f"{len(labels)} records cannot give each of {clients} clients one; lower "
            "federation.clients or raise data.records"
        )
    if not alpha > 0:
        raise InputError(f"federation.dirichlet-alpha is {alpha}; give a number above 0")
    if options and not name.startswith(FLOWER):
        raise InputError(
            f"federation.partition has the options '{options.strip()}', but '{name}' has none; "
            "leave them out"
        )
    division = Division(labels, clients, alpha, keys, _options(options))
    for draw in range(REDRAWS):
        # The key has the draw in it: the split of the dataset uses the bare seed as its key.
        key = np.random.SeedSequence(seed, spawn_key=(draw,))
        generator = np.random.Generator(np.random.Philox(key))
        client_of = draw_clients(division, generator)
        if len(np.unique(client_of)) == clients:
            return client_of
    raise InputError(
        f"with federation.dirichlet-alpha = {alpha}, {REDRAWS} draws left some of the {clients} "
        "clients without a record; raise it or data.records, or lower federation.clients"
    )


def _options(text: str) -> dict[str, int | float | str | bool]:
    """Return the options of "name=value, name=value": numbers, true and false, or words."""
    options: dict[str, int | float | str | bool] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, equals, value = (one.strip() for one in part.partition("="))
        if not (name and equals and value):
            raise InputError(
                f"federation.partition has '{part}'; write name=value, separated by commas"
            )
        options[name] = _option(value)
    return options


def _option(value: str) -> int | float | str | bool:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(value)
    return {"true": True, "false": False}.get(value.lower(), value.strip("\"'"))
