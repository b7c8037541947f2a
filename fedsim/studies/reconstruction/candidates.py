"""Candidates of a reconstruction game: other records, or one record with other values."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adversaries.errors import InputError
from fedsim.common.randomness import Role, generator
from fedsim.game.federation import Federation
from fedsim.learning.data.columns import shortened
from fedsim.learning.data.distribution import LABEL

Floats = npt.NDArray[np.float64]
Prior = Literal["uniform", "data"]
MOST = 1000


@dataclass(frozen=True, eq=False)
class Candidates:
    """The m records of which exactly one is in the training data, in the target's place.

    Attributes:
        question: what the adversary guesses, to follow "The adversary guesses".
        values: the value of the guessed column in each candidate; () where records are guessed.
        prior: float64 [m], probability of each candidate, above 0; sums to 1.
    """

    question: str
    features: Tensor
    labels: Tensor
    values: tuple[str, ...]
    prior: Floats

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def baseline(self) -> float:
        """Success of the best guess without the training: the largest prior probability."""
        return float(self.prior.max())


def of_records(loaded: Federation, record: int, count: int, seed: int) -> Candidates:
    """Return the target's record and random records of the pool, all equally likely.

    Raises InputError for fewer than two candidates, more than `MOST`, or more than records.
    """
    if not 2 <= count <= MOST:
        raise InputError(f"--candidates is {count}; give 2 to {MOST}")
    pool = len(loaded.split.pool)
    if count - 1 > pool:
        raise InputError(
            f"--candidates is {count}, but only {pool} records are outside the training data and "
            f"the held-out data; give at most {pool + 1}, or lower data.records or data.held-out"
        )
    drawn = generator(seed, Role.CANDIDATES).choice(pool, count - 1, replace=False)
    features, labels = loaded.members(np.asarray([record]))
    others = loaded.pool(drawn.tolist())
    return Candidates(
        f"which of {count} records the training used",
        torch.cat([features, others[0]]),
        torch.cat([labels, others[1]]),
        (),
        np.full(count, 1 / count),
    )


def of_column(loaded: Federation, record: int, column: str, prior: Prior) -> Candidates:
    """Return the target's record with each value of a column of a table, or of "label".

    Raises InputError if there is no such column, or it has one value, or more than `MOST`.
    """
    features, labels = loaded.members(np.asarray([record]))
    dataset, pool = loaded.split.dataset, loaded.split.pool
    if column == LABEL:
        if dataset.classes < 2:
            raise InputError(f"--column is {LABEL}, but the labels of {dataset.name} are numbers")
        names = tuple(map(str, range(dataset.classes)))
        number_of, shape = dataset.train.labels, [1] * (features.dim() - 1)
        features = features.repeat(len(names), *shape)
        labels = torch.arange(len(names), dtype=labels.dtype, device=labels.device)
    else:
        block = _block(loaded, column)
        rows, first, number_of = np.unique(
            dataset.train.features[:, block], axis=0, return_index=True, return_inverse=True
        )
        _check(column, len(rows))
        values = dataset.columns[column][first]
        names, number_of = tuple(map(str, values)), number_of.reshape(-1)
        features, labels = features.repeat(len(rows), 1), labels.repeat(len(rows))
        features[:, torch.from_numpy(block)] = torch.from_numpy(rows).to(features)
    if prior == "uniform":
        shares = np.full(len(names), 1 / len(names))
    else:
        counts = np.bincount(number_of[pool], minlength=len(names))
        shares = counts / max(1, counts.sum())
    kept = np.flatnonzero(shares)
    _check(column, len(kept))
    return Candidates(
        f"which of {len(kept)} values of '{column}' a record has",
        features[torch.from_numpy(kept)],
        labels[torch.from_numpy(kept)],
        tuple(names[place] for place in kept),
        shares[kept],
    )


def _block(loaded: Federation, column: str) -> npt.NDArray[np.intp]:
    """Return the positions of a column's features. Raises InputError if it has none."""
    dataset = loaded.split.dataset
    names = list(dataset.columns)
    used = [names[place] for place in np.unique(dataset.column_of)]
    if column not in used:
        columns = shortened([LABEL, *used], 30)
        raise InputError(f"--column is '{column}'; {dataset.name} has {columns}")
    return np.flatnonzero(dataset.column_of == names.index(column))


def _check(column: str, values: int) -> None:
    if not 2 <= values <= MOST:
        raise InputError(
            f"--column is '{column}', which has {values} different values; name a column with 2 "
            f"to {MOST}"
        )
