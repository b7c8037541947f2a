"""The records of simulated clients: D is drawn and dealt, and compared with a random deal."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Floats, Ints
from adversaries.errors import InputError
from adversaries.registry import titled
from fedsim.configuration.federation import DataConfig, FederationConfig
from fedsim.learning.data.columns import is_missing, shortened
from fedsim.learning.data.dataset import Dataset, Records, Split
from fedsim.learning.data.partition import FLOWER, partition

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


def split(dataset: Dataset, records: int, held_out: int, pool: int, seed: int) -> Split:
    """Return D, the pool and the held-out records, disjoint, drawn from the seed alone.

    pool: its largest number of records; 0 for all.
    Raises InputError if there are too few.
    """
    generator = np.random.Generator(np.random.Philox(key=seed))
    order, tests = generator.permutation(len(dataset.train)), dataset.test
    together = records + (held_out if tests is None else 0)
    if together > len(order) or (tests is not None and held_out > len(tests)):
        of_test = "" if tests is None else f"training and {len(tests)} test "
        raise InputError(
            f"{titled(dataset.name)} has {len(order)} {of_test}records, too few for data.records = "
            f"{records} and data.held-out = {held_out}; lower one of them"
        )
    if tests is None:
        order, aside = np.split(order, [len(order) - held_out])
    else:
        aside = generator.permutation(len(tests))[:held_out]
    members, rest = np.split(order, [records])
    return Split(dataset, members, aside, rest[:pool] if pool else rest)


def draw(chosen: DataConfig, source: Dataset) -> Split:
    """Return D, the pool and the held-out records. Raises InputError if there are too few."""
    return split(source, chosen.records, chosen.held_out, chosen.pool, chosen.seed)


def divide(federation: FederationConfig, data_seed: int, split: Split) -> Ints:
    """Return the client of each record of D, int64 [n]."""
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


def only(dataset: Dataset, classes: Sequence[str]) -> Dataset:
    """Return the records of some classes, which are numbered anew.

    classes: two or more different labels, as text; the first becomes 0.
    Raises InputError for other classes.
    """
    labels = [str(label) for label in range(dataset.classes)]
    if not set(classes) <= set(labels) or not 2 <= len(classes) == len(set(classes)):
        raise InputError(
            f"data.classes is '{','.join(classes)}'; give two or more different labels of "
            f"{dataset.name}, 0 to {dataset.classes - 1}, such as '0,1', or \"\" for all"
        )
    number = np.array([classes.index(label) if label in classes else -1 for label in labels])

    def kept(records: Records) -> tuple[npt.NDArray[np.intp], Records]:
        rows = np.flatnonzero(number[records.labels] >= 0)
        return rows, Records(records.features[rows], number[records.labels[rows]])

    rows, train = kept(dataset.train)
    return replace(
        dataset,
        train=train,
        test=None if dataset.test is None else kept(dataset.test)[1],
        classes=len(classes),
        columns={name: values[rows] for name, values in dataset.columns.items()},
        keys={name: values[rows] for name, values in dataset.keys.items()},
    )
