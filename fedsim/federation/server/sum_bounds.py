"""How long a client's sum can be: what clipping allows its records, and chance its noise.

A longer one is invalid, and would become part of the model.
"""

import math

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from fedsim.config.objects import GameRules
from fedsim.game.challenge import Challenge
from fedsim.game.federation import Federation
from fedsim.game.one_run import hosts

Floats = npt.NDArray[np.float64]

CHANCE = 1e-15
"""Probability with which honest noise is longer than its bound, in one trial and round."""

LENIENT = 1 + 1e-4
"""By what factor a float32 norm may be above its bound."""


def clipped_parts(
    unit: str,
    records: int,
    copies: int,
    known: Federation,
    chosen: Challenge,
    planted: int,
    partition: int,
) -> int:
    """Return of how many clipped gradients, or updates, a client's clean sum is made at most.

    unit: what neighbouring federations differ in, one record or all data of one client.
    planted: how many of the configured canaries are in this client's records.
    Returns: its records, or n where the server does not read them, the copies of a crafted
    challenge that only one world has, planted canaries, and one more for a canary of its own that
    it need not speak of; 1 and the canaries at client level, where the client's whole update is
    clipped.
    """
    own = 1
    if unit == "record":
        # How many records of its own a client has, nobody else knows.
        read = len(known.owned_by(partition)) if len(known.client_of) else records
        own = read + 1
        if partition == chosen.client:
            own += copies
    return own + planted


def longest_sum(
    rules: GameRules,
    known: Federation,
    chosen: Challenge,
    partition: int,
    noise_std: Floats,
    size: int,
) -> Floats:
    """Return how long the message of a client can be in every trial, noise included.

    noise_std: [T], of the noise that each of the trials has in a step if clients add it.
    Returns: [T]; infinity where nothing is clipped.
    """
    training = rules.scheme.training
    if not training.clipping:
        return np.full(noise_std.shape, np.inf)
    planted = int((hosts(rules) == partition).sum()) if rules.canaries.count else 0
    parts = clipped_parts(
        rules.scheme.privacy.unit,
        rules.scheme.records,
        rules.scheme.copies,
        known,
        chosen,
        planted,
        partition,
    )
    clean = training.local_steps * parts * training.clipping_norm * LENIENT
    trust = rules.scheme.federation.trust.model
    if trust.server_draws:
        return np.full(noise_std.shape, clean)
    # |N(0, s² I)|² / s² is chi-squared with P degrees of freedom; the noises of L steps add up.
    quantile = math.sqrt(training.local_steps * chi2.isf(CHANCE, size))
    share = trust.noise_share(rules.scheme.participation.expected_clients, 1)
    return clean + share * noise_std * quantile * LENIENT
