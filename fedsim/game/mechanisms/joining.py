"""Which clients join a round where that is public, and so what they are charged for.

Two things show who joins. Whoever knows the other records of a client sees them in the sum, or not;
and where clients add the noise, its size says how many there are, and the server sees who sends.
So a client's coin hides nothing of it, and costs nothing to tell; what it saves is the rounds that
the client is not in. In both worlds it joins the same rounds and adds the same noise.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedsim.config import Config
from fedsim.learning.training import sampling

History = tuple[tuple[int, int], ...]
"""A client's rounds: of how many clients' noise, and how many such rounds it joins."""


def joined(config: Config, round: int) -> npt.NDArray[np.bool_] | None:
    """Return which clients join a round, in all trials alike.

    Args:
        config: the experiment.
        round: counts from 1.

    Returns:
        bool [clients]; None if all do, or where a client's own coin protects it.
    """
    if config.joining_rate == 1:
        return None
    clients = config.federation.clients
    return sampling.joined(config.noise_seed, round, clients, config.joining_rate)


def participants(config: Config, round: int) -> tuple[int, ...]:
    """Return whose messages a round is the sum of, with nobody missing.

    Args:
        config: the experiment.
        round: counts from 1.
    """
    there = joined(config, round)
    return tuple(range(config.federation.clients) if there is None else there.nonzero()[0].tolist())


def charged(config: Config, round: int) -> tuple[int, ...]:
    """Return the accounts that a round is charged to: of who joins, where that is public.

    Args:
        config: the experiment.
        round: counts from 1.
    """
    return tuple(config.accounts) if config.joining_rate == 1 else participants(config, round)


def shares(config: Config, round: int) -> int:
    """Return how many clients' noise a round has at least, 1 where one of them is the target.

    With as many missing as are tolerated; all clients where the server draws the noise.

    Args:
        config: the experiment.
        round: counts from 1.
    """
    federation = config.federation
    if federation.trust.model.server_draws or config.joining_rate == 1:
        return federation.fewest_participants
    return max(1, len(participants(config, round)) - federation.tolerated_dropouts)


@lru_cache(maxsize=64)
def most_together(config: Config) -> int:
    """Return how many clients join the planned round that most join, 1 at least.

    Args:
        config: the experiment.
    """
    if config.joining_rate == 1:
        return config.federation.clients
    rounds = range(1, config.training.rounds + 1)
    return max(1, *(len(participants(config, round)) for round in rounds))


@lru_cache(maxsize=64)
def histories(config: Config) -> tuple[History, ...]:
    """Return what the planned rounds are to the clients of whom one is worst off.

    Left out are those who surely are not: somebody else joins as many rounds of as little noise.

    Args:
        config: the experiment.

    Returns:
        Different histories, the one first that is worst without other sampling; not empty.
    """
    rounds = config.training.rounds
    if config.joining_rate == 1:
        return (((shares(config, 1), rounds),),)
    there = np.zeros((rounds, config.federation.clients), dtype=np.bool_)
    for round, row in enumerate(there, start=1):
        row[list(participants(config, round))] = True
    sizes = np.array([shares(config, round) for round in range(1, rounds + 1)])
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
