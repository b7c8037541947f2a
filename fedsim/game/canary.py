"""Consented canaries: crafted records whose trace in the sums tells how loud one record is.

A client that sets `canary-seed` in its node config adds, in every trial and round, a gradient of
norm C in a random direction to its clean sum if a coin says so. Who knows the seed knows the
directions and the coins, and can look for the trace in the released sums
(`adversaries.statistics.canaries`). A canary moves a sum no more than any record may, so everybody
else's guarantee stays as it is. The beliefs of an adversary who does not know of it are off by what
it adds in their direction, which two random directions in P dimensions have in common: about
C/sqrt(P) of the noise's scale.
"""

import numpy as np
import numpy.typing as npt

from fedsim.common.randomness import Role, generator

SEED = "canary-seed"
"""The key of a client's node config that turns canaries on."""


def draw(
    seed: int, trials: range, round: int, size: int
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Return the coins and the unit directions of a round.

    A trial's are a function of (seed, trial, round) alone.

    Args:
        seed: the client's `canary-seed`.
        trials: the numbers of the T trials.
        round: counts from 1.
        size: P, the number of parameters.

    Returns:
        Coins bool [T], and directions float64 [T, P].
    """
    coins = np.empty(len(trials), dtype=np.bool_)
    directions = np.empty((len(trials), size))
    for row, trial in enumerate(trials):
        stream = generator(seed, Role.CANARY, trial=trial, round=round)
        coins[row] = stream.random() < 0.5
        stream.standard_normal(out=directions[row])
    return coins, directions / np.linalg.norm(directions, axis=1, keepdims=True)


def contribution(
    seed: int, trials: range, round: int, size: int, norm: float
) -> npt.NDArray[np.float64]:
    """Return what the canaries add to the clean sums of a round.

    Args:
        seed: the client's `canary-seed`.
        trials: the numbers of the T trials.
        round: counts from 1.
        size: P, the number of parameters.
        norm: C, the clipping norm.

    Returns:
        float64 [T, P]; rows of 0 where the coin says so.
    """
    coins, directions = draw(seed, trials, round, size)
    return norm * coins[:, None] * directions
