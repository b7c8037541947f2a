"""Poisson sampling: which records, or clients, take part in a round.

Every record of D takes part with the same probability q, independently of all others and of other
rounds: what the subsampled accountants assume, and batches of a fixed size or shuffling are not.
Where D' has a record in another's place, it uses that record's coin.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedsim.common.randomness import Role, generator


def participation(
    seed: int | None, trials: Sequence[int], round: int, records: int, rate: float
) -> npt.NDArray[np.bool_] | None:
    """Return which of the records of D take part in a round.

    Args:
        seed: of the run: a row is a function of (seed, trial, round) alone. None draws from the
            operating system's entropy instead, and something else with each call: a client calls
            once a round, and uses the columns of its own records.
        trials: the numbers of the T trials.
        round: counts from 1.
        records: n, of D.
        rate: the probability q of a record.

    Returns:
        bool [T, n]; None if all of them do (q = 1).
    """
    if rate == 1:
        return None
    coins = np.empty((len(trials), records))
    for row, trial in zip(coins, trials, strict=True):
        generator(seed, Role.SAMPLING, trial=trial, round=round).random(out=row)
    return coins < rate


def clients(
    seed: int | None, trials: Sequence[int], round: int, clients: int, rate: float, target: int
) -> npt.NDArray[np.bool_] | None:
    """Return which clients take part in a round.

    All trials share the coins of the others, which the adversary knows: it asks for a share q of
    the clients and not for all that some trial samples, and inference is conditional on them. The
    target's coins are each trial's own.

    Args:
        seed: of the run; None draws from the operating system's entropy.
        trials: the numbers of the T trials.
        round: counts from 1.
        clients: how many there are.
        rate: the probability q of a client.
        target: the client whose coins are the trials' own.

    Returns:
        bool [T, clients]; None if all do (q = 1).
    """
    own = participation(seed, trials, round, 1, rate)
    if own is None:
        return None
    coins = np.tile(joined(seed, round, clients, rate), (len(trials), 1))
    coins[:, target] = own[:, 0]
    return coins


def joined(seed: int | None, round: int, clients: int, rate: float) -> npt.NDArray[np.bool_]:
    """Return which clients join a round, in all trials alike.

    Args:
        seed: of the run; None draws from the operating system's entropy.
        round: counts from 1.
        clients: how many there are.
        rate: the probability of a client.

    Returns:
        bool [clients].
    """
    return generator(seed, Role.CLIENT_SAMPLING, round=round).random(clients) < rate


def groups(
    seed: int | None,
    trials: range,
    round: int,
    partition: int,
    records: int,
    most: int,
    members: int,
) -> npt.NDArray[np.intp]:
    """Return disjoint groups of a client's records, drawn at random.

    Args:
        seed: a row is a function of (seed, trial, round, partition) alone. None draws from the
            operating system's entropy.
        trials: the numbers of the T trials.
        round: counts from 1.
        partition: the client.
        records: n, how many it has.
        most: the wanted number of groups.
        members: records in a group.

    Returns:
        Positions among the n records, [T, m, members]. m is `most`, or fewer where the records do
        not suffice: groups that share a record would not be independent.
    """
    count = min(most, records // members)
    drawn = np.empty((len(trials), count * members), dtype=np.intp)
    for row, trial in zip(drawn, trials, strict=True):
        stream = generator(seed, Role.PAIRS, trial=trial, round=round, partition=partition)
        row[:] = stream.choice(records, row.size, replace=False)
    return drawn.reshape(len(trials), count, members)
