"""Summation of clients' messages: as floats, or as integers on a grid if summed securely."""

from fedsim.config.objects import Scheme
from fedsim.game.mechanisms import fixed_point
from fedsim.game.mechanisms.fixed_point import FixedPoint
from fedsim.privacy import mechanism


def grid(scheme: Scheme, noise_multiplier: float, parameters: int) -> FixedPoint | None:
    """Return the grid of clients' messages; None where they are floats. Raises InputError."""
    if not scheme.federation.trust.model.summed_securely:
        return None
    return fixed_point.agreed(scheme, noise_multiplier, parameters)


def sensitivity(scheme: Scheme, noise_multiplier: float, parameters: int) -> float:
    """Return how far the target moves the sum, rounding included: the scale of the noise."""
    chosen = grid(scheme, noise_multiplier, parameters)
    if chosen is not None:
        return chosen.sensitivity
    return mechanism.sensitivity(scheme.privacy.neighbouring, scheme.training.clipping_norm)
