"""Noise that is a share of the update is told from noise that happens to be as large."""

import math

import numpy as np

from fedsim.audits.recorded.participant_rounds import ShareRounds
from fedsim.federation.transcripts.records import ObservedRound

SHARE, PERCENTILE, ROUNDS = 0.1, 95.0, 5


def _identified(seed: int, numbers: int, fixed: float | None) -> bool:
    """Return whether noise, of a fixed size or of the share, is called its share."""
    rounds, generator = ShareRounds(), np.random.default_rng(seed)
    for number in range(ROUNDS):
        update = generator.standard_normal(numbers)
        share = SHARE * np.percentile(np.abs(update), PERCENTILE)
        noise = generator.normal(0, share if fixed is None else fixed, numbers)
        mechanism = {"gaussian_sigma0": SHARE, "gaussian_max_percentile": PERCENTILE}
        rounds.observe(
            ObservedRound(
                number,
                {"w": np.zeros(numbers)},
                own={"w": update + noise},
                unprotected={"w": update},
                mechanism=mechanism,
            )
        )
    found = rounds.measured()
    identified = None if found is None else found[1].identified
    return identified is not None and identified.epsilon == math.inf


def test_fixed_noise_of_the_size_of_the_share_is_not_called_the_share() -> None:
    # Of 30 numbers an interval holds 1 for nearly any noise of this size: that rejects nothing.
    assert not any(_identified(seed, 30, 0.2) for seed in range(50))
    assert not any(_identified(seed, 5000, 0.23) for seed in range(5))


def test_noise_that_is_the_share_is_told_by_rounds_of_enough_numbers() -> None:
    assert all(_identified(seed, 5000, None) for seed in range(20))
