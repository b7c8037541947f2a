"""The split of a dataset into members D, held-out records and the candidate pool U \\ D."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Ints
from adversaries.errors import InputError
from adversaries.registry import titled
from fedsim.learning.data.dataset import Dataset, Records


@dataclass(frozen=True, eq=False)
class Split:
    """The positions of D, held-out records and pool in a dataset, int64."""

    dataset: Dataset
    members: Ints
    held_out: Ints
    pool: Ints

    @cached_property
    def members_records(self) -> Records:
        return self.dataset.train.take(self.members)

    @cached_property
    def held_out_records(self) -> Records:
        source = self.dataset.train if self.dataset.test is None else self.dataset.test
        return source.take(self.held_out)

    @cached_property
    def pool_records(self) -> Records:
        return self.dataset.train.take(self.pool)


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


@dataclass(frozen=True, eq=False)
class Division:
    """The records that a partition divides among clients, by labels or whole keys [n].

    Attributes:
        alpha: concentration of "dirichlet" and "quantity".
        options: of a partitioner of Flower, by its names.
    """

    labels: Ints
    clients: int
    alpha: float
    keys: npt.NDArray[Any] | None = None
    options: Mapping[str, int | float | str | bool] = field(default_factory=dict)
