"""The Gaussian noise that the server adds to a round's sum."""

from collections.abc import Sequence
from dataclasses import dataclass

from adversaries.arrays import Floats
from fedsim.common.randomness import SERVER, gaussian_noise


@dataclass(frozen=True)
class Noised:
    """The release of a round.

    Attributes:
        total: float64 [T, P].
        noise: float64 [T, P], the server's part of the noise; None where clients add noise.
    """

    total: Floats
    noise: Floats | None = None


def add_noise(
    total: Floats, stds: Floats, seed: int | None, trials: Sequence[int], round: int
) -> Noised:
    """Add independent normal noise to every coordinate of a sum, in place.

    Args:
        total: float64 [T, P].
        stds: float64 [T], standard deviation of the noise.
        seed: seed of the noise; None for the operating system's entropy.
        trials: number of each trial, [T], which decides what it draws.
        round: counts from 1.
    """
    noise = gaussian_noise(seed, trials, round, SERVER, total.shape[1])
    noise *= stds[:, None]
    total += noise
    return Noised(total, noise)
