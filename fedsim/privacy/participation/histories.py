"""What the planned rounds are to single clients, where it is public who joins them."""

from functools import lru_cache

import numpy as np

from fedsim.privacy.participation.rule import Participation

History = tuple[tuple[int, int], ...]
"""A client's rounds: of how many clients' noise, and how many such rounds it joins."""


@lru_cache(maxsize=64)
def most_together(participation: Participation, rounds: int) -> int:
    """Return how many clients join the planned round that most join, 1 at least.

    Args:
        participation: the rule.
        rounds: number of planned rounds.
    """
    if not participation.varying:
        return participation.setting.clients
    return max(1, *(len(participation.participants(each)) for each in range(1, rounds + 1)))


@lru_cache(maxsize=64)
def histories(participation: Participation, rounds: int) -> tuple[History, ...]:
    """Return what the planned rounds are to the clients of whom one is worst off.

    Left out are clients that surely are not: another joins as many rounds of as little noise.

    Args:
        participation: the rule.
        rounds: number of planned rounds.

    Returns:
        Different histories, the one first that is worst without other sampling; not empty.
    """
    if not participation.varying:
        return (((participation.shares(1), rounds),),)
    there = np.zeros((rounds, participation.setting.clients), dtype=np.bool_)
    for round, row in enumerate(there, start=1):
        row[list(participation.participants(round))] = True
    sizes = np.array([participation.shares(round) for round in range(1, rounds + 1)])
    kinds = np.unique(sizes)
    # Of each client, how many of its rounds have so few shares: [clients, kinds].
    counts = np.stack([there[sizes == kind].sum(axis=0) for kind in kinds], axis=1)
    found = np.unique(counts[counts.sum(axis=1) > 0], axis=0)
    if not len(found):  # nobody joins any
        return (((int(kinds[0]), 1),),)
    at_most = found.cumsum(axis=1)
    worst: list[int] = []
    for place in np.argsort(-(found / kinds).sum(axis=1), kind="stable"):
        if not any((at_most[other] >= at_most[place]).all() for other in worst):
            worst.append(int(place))
    return tuple(
        tuple(
            (int(kind), int(count))
            for kind, count in zip(kinds, found[place], strict=True)
            if count
        )
        for place in worst
    )
