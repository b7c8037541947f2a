"""Mechanisms that are alike but for the scale of their noise, and what errors each leaves possible.

For bounds that know how a mechanism samples and composes but do not trust the size of its noise.
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from adversaries.statistics.rate_bounds import NoiseFamily
from fedsim.privacy import loss_distribution
from fedsim.privacy.accounting import PLD
from fedsim.privacy.loss_distribution import Array
from fedsim.privacy.mechanism import Mechanism

SCALES = tuple(float(scale) for scale in 2.0 ** (np.arange(-4 * 32, 8 * 32 + 1) / 32))
"""A sixteenth to 256 times the claimed noise, in steps of 2 %."""

LINES = 2000
"""Supporting lines of a trade-off curve, at most."""

LARGEST_LOSS = 600.0

REACH = 6.0
"""Standard deviations of the loss beyond which no supporting line is taken."""


def noise_family(mechanism: Mechanism) -> NoiseFamily:
    """Return the family of a mechanism with noise, for `rate_bounds.trade_off_bound`.

    Of full batches it is the Gaussian family, whose bound is that of mu-Gaussian privacy up to a
    step of the scale.
    """
    multipliers = [group.noise_multiplier for group in mechanism.groups]
    return NoiseFamily(
        # Of a mechanism that double precision can answer for.
        scales=[
            scale
            for scale in SCALES
            if scale * min(multipliers) >= 1e-6 and scale * max(multipliers) <= 1e100
        ],
        miss_rate=lambda scale, rate: miss_rate(scaled(mechanism, scale), rate),
        epsilon=lambda scale, delta: PLD.epsilon(scaled(mechanism, scale), delta),
    )


def scaled(mechanism: Mechanism, scale: float) -> Mechanism:
    """Return the mechanism with all noise multipliers times the scale.

    Args:
        scale: above 0.
    """
    groups = (
        replace(group, noise_multiplier=group.noise_multiplier * scale)
        for group in mechanism.groups
    )
    return Mechanism(tuple(groups), mechanism.neighbouring)


def miss_rate(mechanism: Mechanism, false_positive_rate: float) -> float:
    """Return the least false negative rate of accusing D at a false positive rate, or less.

    delta(epsilon) of D against D' says TPR - e^epsilon FPR <= delta(epsilon) at every real epsilon,
    and the trade-off curve is the highest of these lines (Dong, Roth and Su, "Gaussian differential
    privacy", 2019, Proposition 2.12). Fewer lines and a pessimistic loss distribution lie below it.
    0 where there is no loss distribution: too little noise to say.

    Args:
        false_positive_rate: in [0, 1].
    """
    slopes, offsets = _lines(mechanism)
    return float(np.max(offsets - slopes * false_positive_rate, initial=0.0))


@lru_cache(maxsize=len(SCALES))
def _lines(mechanism: Mechanism) -> tuple[Array, Array]:
    """Return slopes e^epsilon [n] and offsets 1 - delta(epsilon) [n] of the supporting lines."""
    if not loss_distribution.resolves(mechanism, 1e-3):
        return np.empty(0), np.empty(0)
    found = loss_distribution.composed(mechanism)[0]
    losses, masses = found.losses, np.maximum(found.masses, 0.0)
    true = found.infinite + np.cumsum(masses[::-1])[::-1]
    # Cut off where e^loss has no float; that only lowers the lines.
    false = np.cumsum((masses * np.exp(-np.maximum(losses, -LARGEST_LOSS)))[::-1])[::-1]
    # Even in standard deviations, were the loss a normal one.
    levels = ndtr(np.linspace(REACH, -REACH, LINES))
    chosen = np.unique(np.searchsorted(-true, -levels))
    chosen = chosen[chosen < losses.size]
    chosen = chosen[np.abs(losses[chosen]) < LARGEST_LOSS]
    slopes = np.exp(losses[chosen])
    return slopes, 1 - (true[chosen] - slopes * false[chosen])
