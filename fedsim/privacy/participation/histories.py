"""The planned rounds of single clients, where it is public who joins a round."""

from functools import lru_cache

import numpy as np

from fedsim.privacy.participation.rule import History, Participation


@lru_cache(maxsize=64)
def most_together(participation: Participation, rounds: int) -> int:
    """Return the largest number of clients that join a planned round, at least 1.

    Args:
        participation: the rule.
        rounds: number of planned rounds.
    """
    if not participation.varying:
        return participation.clients
    return max(1, *(len(participation.participants(each)) for each in range(1, rounds + 1)))


@lru_cache(maxsize=64)
def histories(participation: Participation, rounds: int) -> tuple[History, ...]:
    """Return the histories of clients, one of which loses the most privacy.

    A client is left out if another client joins as many rounds with as little noise.

    Args:
        participation: the rule, by which rounds have different clients.
        rounds: number of planned rounds.

    Returns: Distinct histories, not empty; the first is the worst where records are not sampled.
    """
    joined = np.zeros((rounds, participation.clients), dtype=np.bool_)
    for round, row in enumerate(joined, start=1):
        row[list(participation.participants(round))] = True
    sizes = np.array([participation.shares(round) for round in range(1, rounds + 1)])
    kinds = np.unique(sizes)
    # counts[client, kind]: how many rounds with so many noise shares the client joins.
    counts = np.stack([joined[sizes == kind].sum(axis=0) for kind in kinds], axis=1)
    distinct = np.unique(counts[counts.sum(axis=1) > 0], axis=0)
    if not len(distinct):  # no client joins any round
        return (((int(kinds[0]), 1),),)
    # at_most[client, kind]: how many rounds with at most so many shares the client joins.
    at_most = distinct.cumsum(axis=1)
    worst: list[int] = []
    # Worst first: the noise's variance grows with its shares, so mu^2 is as sum counts/shares.
    for place in np.argsort(-(distinct / kinds).sum(axis=1), kind="stable"):
        # A client is dominated where another joins as many rounds at every limit of the noise.
        if not any((at_most[other] >= at_most[place]).all() for other in worst):
            worst.append(int(place))
    return tuple(
        tuple(
            (int(kind), int(count))
            for kind, count in zip(kinds, distinct[place], strict=True)
            if count
        )
        for place in worst
    )
