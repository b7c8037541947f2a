"""The split of a dataset into members D, held-out records and the candidate pool U \\ D."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.learning.data.loaders.dataset import Dataset, Records


@dataclass(frozen=True, eq=False)
class Split:
    """Who is a member.

    Attributes:
        dataset: whose records these are.
        members: D, int64 [n], positions in `dataset.train`.
        held_out: records that nobody trains on, int64, positions in `dataset.test` where there is
            one and in `dataset.train` otherwise.
        pool: candidates for a replacement, int64, positions in `dataset.train`.
    """

    dataset: Dataset
    members: npt.NDArray[np.int64]
    held_out: npt.NDArray[np.int64]
    pool: npt.NDArray[np.int64]

    @cached_property
    def members_records(self) -> Records:
        """The records of D, in the order of `members`."""
        return self.dataset.train.take(self.members)

    @cached_property
    def held_out_records(self) -> Records:
        """The records that nobody trains on."""
        source = self.dataset.train if self.dataset.test is None else self.dataset.test
        return source.take(self.held_out)

    @cached_property
    def pool_records(self) -> Records:
        """The records of the pool, in the order of `pool`."""
        return self.dataset.train.take(self.pool)


def split(dataset: Dataset, records: int, held_out: int, pool: int, seed: int) -> Split:
    """Return D, the pool and the held-out records, disjoint, drawn from the seed alone.

    D and the pool follow on each other in a permutation of `dataset.train`. The held-out records
    come from a permutation of `dataset.test`, or else from the end of the first one.

    pool: the most records that the pool may have; 0 for all that are left.
    Raises InputError if D and the held-out records are more than there are.
    """
    generator = np.random.Generator(np.random.Philox(key=seed))
    order = generator.permutation(len(dataset.train))
    if dataset.test is None:
        if records + held_out > len(order):
            raise InputError(
                f"{dataset.name} has {len(order)} records, too few for data.records = {records} "
                f"and data.held-out = {held_out}; lower one of them"
            )
        order, aside = np.split(order, [len(order) - held_out])
    else:
        if records > len(order) or held_out > len(dataset.test):
            raise InputError(
                f"{dataset.name} has {len(order)} training and {len(dataset.test)} test records, "
                f"too few for data.records = {records} and data.held-out = {held_out}; lower them"
            )
        aside = generator.permutation(len(dataset.test))[:held_out]
    members, rest = np.split(order, [records])
    return Split(dataset, members, aside, rest[:pool] if pool else rest)


@dataclass(frozen=True, eq=False)
class Division:
    """What is to be divided among clients.

    Attributes:
        labels: int64 [n].
        clients: how many there are.
        alpha: concentration of the skewed schemes, above 0.
        keys: [n], what each record has in the column that must not be split; None where no column
            was named.
        options: what a partitioner of Flower is given besides, by name.
    """

    labels: npt.NDArray[np.int64]
    clients: int
    alpha: float
    keys: npt.NDArray[Any] | None = None
    options: Mapping[str, int | float | str | bool] = field(default_factory=dict)
