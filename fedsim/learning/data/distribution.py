"""Data distribution: the records of D by client and label, compared with a random deal."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Floats, Ints
from adversaries.errors import InputError
from fedsim.configuration.federation import CLIENT, OWN, TEXTS, DataConfig, FederationConfig
from fedsim.learning import data
from fedsim.learning.data import Dataset, Split, own_records
from fedsim.learning.data.columns import is_missing, shortened
from fedsim.learning.data.dataset import parsed

LABEL = "label"
"""Name of the labels as a column: `partition-key = "label"` deals classes."""

SHOWN_COLUMNS = 20
"""Number of column names that a message or report shows."""


@dataclass(frozen=True, eq=False)
class DataDistribution:
    """The number of records of each label that each client has, int64 [clients, classes]."""

    counts: Ints

    @cached_property
    def sizes(self) -> Ints:
        """Records of each client [clients]."""
        return self.counts.sum(axis=1)

    @cached_property
    def classes(self) -> Ints:
        """Number of labels of which each client has a record [clients]."""
        return np.count_nonzero(self.counts, axis=1)

    @cached_property
    def label_skew(self) -> Floats:
        """Total variation distance of each client's labels from all labels of D [clients], 0..1."""
        overall = self.counts.sum(axis=0) / self.sizes.sum()
        return np.abs(self.counts / self.sizes[:, None] - overall).sum(axis=1) / 2

    @property
    def mean_skew(self) -> float:
        """The mean of `label_skew` over all records."""
        return float(np.average(self.label_skew, weights=self.sizes))


def held(
    source: DataConfig,
    federation: FederationConfig,
    weights: str,
    client: int | None = None,
    every_client: bool = False,
    rehearsed: bool = False,
) -> tuple[Split, Ints]:
    """Return D, the pool, the held-out records, and the client of each record, int64 [n].

    client: whose own records are read; None for a server.
    every_client: of all; a rehearsal may.
    """
    if source.name != OWN:
        split = draw(source, dataset(source, weights))
        return split, divide(federation, source.seed, split)
    clients: Iterable[int] = () if client is None else (client,)
    if rehearsed or every_client:
        clients = range(federation.clients)
    split, client_of = _own(source, weights, tuple(clients))
    if rehearsed and len(client_of) != source.records:
        raise InputError(
            f"the clients have {len(client_of)} records together, but data.records is "
            f"{source.records}, which divides sums; rehearse with data.records = "
            f"{len(client_of)}"
        )
    return split, client_of


def dataset(source: DataConfig, weights: str) -> Dataset:
    """Return the dataset of a configuration; for clients' own records, its public part."""
    text, public = source.public_schema, source.public_root
    if source.name == OWN:
        return own_records.dataset(text, (), public, weights)
    if text:  # a table, read by its schema instead of by its records
        from fedsim.learning.data import table  # noqa: PLC0415  (simulated clients)

        return table.by_schema(text, source.root)
    exclude = tuple(filter(None, (column.strip() for column in source.exclude.split(","))))
    classes = tuple(filter(None, (label.strip() for label in source.classes.split(","))))
    tokenizer = weights if source.name == TEXTS else ""
    return data.load(
        source.name,
        source.root,
        source.label,
        exclude,
        image_size=source.image_size,
        download=source.download,
        length=source.length,
        tokenizer=tokenizer,
        target=parsed(source.target),
        classes=classes,
    )


def _own(source: DataConfig, weights: str, clients: tuple[int, ...]) -> tuple[Split, Ints]:
    if len(clients) > 1 and not source.root:
        raise InputError(
            "data.root is empty, because each client has its records on its own machine, where "
            "fedsim deploy check reads them; on a machine that may read all records, set "
            f"data.root=FOLDER/client-{CLIENT}.csv"
        )
    paths = tuple(source.root.replace(CLIENT, str(client)) for client in clients)
    if len(clients) > 1 and len(set(paths)) < len(paths):
        raise InputError(
            f"data.root is '{source.root}', the same for all clients; put {CLIENT} in place of the "
            "client's number"
        )
    text, directory = source.public_schema, weights  # the tokenizer lies with the weights
    joined = own_records.dataset(text, paths, source.public_root, directory)
    sizes = [own_records.count(text, path, directory) for path in paths]
    own = sum(sizes)
    generator = np.random.Generator(np.random.Philox(key=source.seed))
    public = own + generator.permutation(len(joined.train) - own)
    split = Split(joined, np.arange(own), public[: source.held_out], public[source.held_out :])
    return split, np.repeat(np.asarray(clients, dtype=np.int64), sizes)


def draw(chosen: DataConfig, source: Dataset) -> Split:
    """Return D, the pool and the held-out records.

    Raises InputError if there are too few records.
    """
    return data.split(source, chosen.records, chosen.held_out, chosen.pool, chosen.seed)


def divide(federation: FederationConfig, data_seed: int, split: Split) -> Ints:
    """Return the client of each record of D, int64 [n]."""
    from fedsim.learning.data.partition import partition  # noqa: PLC0415  (simulated clients)

    return partition(
        split.members_records.labels,
        federation.clients,
        federation.partition,
        federation.dirichlet_alpha,
        data_seed,
        keys(federation, split),
    )


def keys(federation: FederationConfig, split: Split) -> npt.NDArray[Any] | None:
    """Return the key of each record of D, [n], which a partition does not split; None without one.

    Raises InputError if the dataset has no such column, if the scheme would split it, or if
    "label" is ambiguous because the dataset also has a column of this name.
    """
    from fedsim.learning.data.partition import FLOWER  # noqa: PLC0415  (simulated clients)

    name, scheme = federation.partition_key, federation.partition.partition(",")[0].strip()
    by_key = scheme == "key" or (scheme.startswith(FLOWER) and name)
    if not by_key:
        if name:
            raise InputError(
                f"federation.partition-key is '{name}', but federation.partition is '{scheme}', "
                "which does not use it; set federation.partition=key, or remove "
                "federation.partition-key"
            )
        return None
    columns = columns_of(split.dataset)
    if name not in columns:
        raise InputError(
            f"federation.partition-key is '{name}', but the columns of {split.dataset.name} are "
            f"{named(columns)}; name one of them"
        )
    if name == LABEL and LABEL in split.dataset.columns:
        raise InputError(
            f"federation.partition-key is '{LABEL}', which names the labels of every dataset, but "
            f"{split.dataset.name} also has a column of this name; rename that column"
        )
    of_members: npt.NDArray[Any] = columns[name][split.members]
    if of_members.dtype.kind == "U" and (gaps := is_missing(of_members.tolist())).any():
        raise InputError(
            f"{int(gaps.sum())} records of D have no '{name}', which decides their client; fill it "
            "in, or leave them out of the file"
        )
    return of_members


def columns_of(source: Dataset) -> dict[str, npt.NDArray[Any]]:
    """Return the keys that can deal records: the original columns [N] by name, and the labels."""
    own = {**source.columns, **source.keys}
    own.pop(LABEL, None)
    return {LABEL: source.train.labels, **own}


def named(columns: Iterable[str]) -> str:
    return shortened(list(columns), SHOWN_COLUMNS)


def hold(split: Split, client_of: Ints, clients: int) -> DataDistribution:
    """Return the number of records of D that each client has, by label."""
    classes = split.dataset.classes
    labels = split.members_records.labels if split.dataset.target is None else 0  # no classes
    cells = client_of * classes + labels
    counts = np.bincount(cells, minlength=clients * classes).reshape(clients, classes)
    return DataDistribution(counts)
