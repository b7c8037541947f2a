"""Poisson sampling: which records, or clients, take part in a round.

Every record of D takes part with the same probability q, independently of all others and of other
rounds. A record that replaces another in D' uses that record's coin.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from adversaries.arrays import Bools
from fedsim.common.randomness import StreamRole, generator


def participation(
    seed: int | None, trials: Sequence[int], round: int, records: int, rate: float
) -> Bools | None:
    """Return which of the records of D take part in a round.

    Args:
        seed: None draws anew with each call from the operating system's entropy.
        trials: the numbers of the T trials.
        round: counts from 1.
        records: n, number of records of D.
        rate: q, in (0, 1].

    Returns: bool [T, n]; None if all take part (q = 1).
    """
    if rate == 1:
        return None
    coins = np.empty((len(trials), records))
    for row, trial in zip(coins, trials, strict=True):
        generator(seed, StreamRole.SAMPLING, trial=trial, round=round).random(out=row)
    return coins < rate


def clients(
    seed: int | None, trials: Sequence[int], round: int, clients: int, rate: float, target: int
) -> Bools | None:
    """Return which clients take part in a round.

    Args:
        seed: of the run; None draws from the operating system's entropy.
        trials: the numbers of the T trials.
        round: counts from 1.
        clients: number of clients.
        rate: q, the probability that a client takes part.
        target: the client with separate coins in each trial.

    Returns: bool [T, clients]; None if all take part (q = 1).
    """
    own = participation(seed, trials, round, 1, rate)
    if own is None:
        return None
    # The other clients' coins are public and the same in all trials. Only the target's client draws
    # in each trial.
    coins = np.tile(joined(seed, round, clients, rate), (len(trials), 1))
    coins[:, target] = own[:, 0]
    return coins


remembered = lru_cache(maxsize=4)(clients)
"""All clients that one process plays need the same coins."""


def joined(seed: int | None, round: int, clients: int, rate: float) -> Bools:
    """Return which clients join a round in all trials, bool [clients].

    Args:
        seed: of the run; None draws from the operating system's entropy.
        round: counts from 1.
        clients: number of clients.
        rate: the probability that a client joins.
    """
    return generator(seed, StreamRole.CLIENT_SAMPLING, round=round).random(clients) < rate
