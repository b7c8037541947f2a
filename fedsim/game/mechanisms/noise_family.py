"""A mechanism with noise of unknown size: its trade-off curve and epsilon at every scale."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from adversaries.arrays import Floats
from adversaries.bounds.rate_bounds import NoiseFamily
from fedsim.privacy import loss_distribution
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism

SCALES = tuple(float(scale) for scale in 2.0 ** (np.arange(-4 * 32, 8 * 32 + 1) / 32))
"""A sixteenth to 256 times the claimed noise, in steps of 2 %."""

LINES = 2000
LARGEST_LOSS = 600.0
REACH = 6.0
"""Standard deviations of the loss beyond which no supporting line is taken."""


def noise_family(mechanism: Mechanism) -> NoiseFamily:
    """Return the family of a mechanism with noise, for `rate_bounds.by_scale`.

    For full batches it is the Gaussian family. Its bound is that of mu-Gaussian privacy, up to one
    step of the scale.
    """
    multipliers = [group.noise_multiplier for group in mechanism.groups]
    return NoiseFamily(
        # Only scales at which double precision suffices.
        scales=[
            scale
            for scale in SCALES
            if scale * min(multipliers) >= 1e-6 and scale * max(multipliers) <= 1e100
        ],
        miss_rate=lambda scale, rate: miss_rate(scaled(mechanism, scale), rate),
        epsilon=lambda scale, delta: PLD.epsilon(scaled(mechanism, scale), delta),
    )


def scaled(mechanism: Mechanism, scale: float) -> Mechanism:
    groups = (
        replace(group, noise_multiplier=group.noise_multiplier * scale)
        for group in mechanism.groups
    )
    return Mechanism(tuple(groups), mechanism.neighbouring)


def miss_rate(mechanism: Mechanism, false_positive_rate: float) -> float:
    """Return a lower bound on the false negative rate of naming D, at a false positive rate.

    delta(epsilon) of D against D' says TPR - e^epsilon FPR <= delta(epsilon) at every real epsilon.
    The trade-off curve is the highest of these lines (Dong, Roth and Su, "Gaussian differential
    privacy", 2019, Proposition 2.12). Fewer lines, and a pessimistic loss distribution, lie below
    the curve. The bound is 0 where the noise is too little for a loss distribution.
    """
    slopes, offsets = _lines(mechanism)
    return float(np.max(offsets - slopes * false_positive_rate, initial=0.0))


@lru_cache(maxsize=len(SCALES))
def _lines(mechanism: Mechanism) -> tuple[Floats, Floats]:
    """Return slopes e^epsilon [n] and offsets 1 - delta(epsilon) [n] of the supporting lines."""
    if not loss_distribution.resolves(mechanism, 1e-3):
        return np.empty(0), np.empty(0)
    distribution = loss_distribution.composed(mechanism)[0]
    losses, masses = distribution.losses, np.maximum(distribution.masses, 0.0)
    # The probability under D that the loss is at least each value: from the right, with the
    # infinite loss first.
    true = distribution.infinite + np.cumsum(masses[::-1])[::-1]
    # The same under D', where each loss has e^-loss times its probability under D. Cut off where
    # e^loss overflows, which only lowers the lines.
    false = np.cumsum((masses * np.exp(-np.maximum(losses, -LARGEST_LOSS)))[::-1])[::-1]
    # Spaced evenly in standard deviations, as if the loss were normal.
    levels = ndtr(np.linspace(REACH, -REACH, LINES))
    # `true` falls, so its negative rises and can be searched.
    chosen = np.unique(np.searchsorted(-true, -levels))
    chosen = chosen[chosen < losses.size]
    chosen = chosen[np.abs(losses[chosen]) < LARGEST_LOSS]
    # One supporting line at each chosen loss: slope e^loss, and offset 1 - delta(loss) with delta =
    # true - e^loss false.
    slopes = np.exp(losses[chosen])
    return slopes, 1 - (true[chosen] - slopes * false[chosen])
