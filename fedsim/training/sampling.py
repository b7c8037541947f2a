"""Poisson sampling: which records take part in a round.

Every record of D takes part with the same probability q, independently of all others and of other
rounds: what the subsampled accountants assume, and batches of a fixed size or shuffling are not.
Where D' has a record in another's place, it uses that record's coin.
"""

import secrets
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common.randomness import Role, key
from fedsim.config import Config


def participation(
    seed: int | None, trials: Sequence[int], round: int, records: int, rate: float
) -> npt.NDArray[np.bool_] | None:
    """Return which of the records of D take part in a round, bool [T, n]; None if all of them do.

    A row is a function of (seed, trial, round) alone. `seed` None draws from the operating system's
    entropy instead, and something else with each call: an owner calls once a round, and uses the
    columns of its own records.
    """
    if rate == 1:
        return None
    coins = np.empty((len(trials), records))
    for row, trial in zip(coins, trials, strict=True):
        leaf = (
            secrets.randbits(128)
            if seed is None
            else key(seed, Role.SAMPLING, trial=trial, round=round)
        )
        np.random.Generator(np.random.Philox(key=leaf)).random(out=row)
    return coins < rate


def groups(
    seed: int | None,
    trials: range,
    round: int,
    partition: int,
    records: int,
    most: int,
    members: int,
) -> npt.NDArray[np.intp]:
    """Return disjoint groups of an owner's n records, drawn at random, [T, m, members].

    m is `most`, or fewer where the records do not suffice: groups that share a record would not be
    independent. A row is a function of (seed, trial, round, partition) alone; `seed` None draws
    from the operating system's entropy.
    """
    count = min(most, records // members)
    drawn = np.empty((len(trials), count * members), dtype=np.intp)
    for row, trial in zip(drawn, trials, strict=True):
        leaf = (
            secrets.randbits(128)
            if seed is None
            else key(seed, Role.PAIRS, trial=trial, round=round, partition=partition)
        )
        generator = np.random.Generator(np.random.Philox(key=leaf))
        row[:] = generator.choice(records, row.size, replace=False)
    return drawn.reshape(len(trials), count, members)


def check(config: Config) -> None:
    """Raise InputError if the embedded adversary would need coins that only their owners know."""
    sampled = config.training.sampling_rate < 1
    if sampled and config.noise_seed is None and config.audit.mode == "participant":
        raise InputError(
            "privacy.noise-source is 'system' with training.sampling-rate below 1: the adversary's "
            "background knowledge, which of the other records take part, is known to their owners "
            'alone; choose audit.mode = "instrumented" or noise-source = "seed"'
        )
