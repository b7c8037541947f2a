"""Which clients join a round where records are the unit: public, and so what they are charged for.

Whoever knows the other records of a client sees in the sum whether it joined. So its coin hides no
record of it, and costs nothing to tell; what it saves is the rounds that the client is not in.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedsim.config import Config
from fedsim.training import sampling


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


def charged(config: Config, round: int) -> tuple[int, ...]:
    """Return the accounts that a round is charged to: of who joins, where that is public.

    Args:
        config: the experiment.
        round: counts from 1.
    """
    there = joined(config, round)
    return tuple(config.accounts) if there is None else tuple(there.nonzero()[0].tolist())


@lru_cache(maxsize=64)
def most_rounds(config: Config) -> int:
    """Return how many of the planned rounds the client joins that joins most, 1 at least.

    Args:
        config: the experiment.
    """
    rounds = config.training.rounds
    there = [joined(config, round) for round in range(1, rounds + 1)]
    counted = [each for each in there if each is not None]
    return max(1, int(np.sum(counted, axis=0).max())) if counted else rounds
