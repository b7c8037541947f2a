"""How clients' messages are summed: as numbers, or as integers on a grid where summed securely."""

from fedsim.config import Config
from fedsim.game.mechanisms import fixed_point
from fedsim.game.mechanisms.fixed_point import FixedPoint
from fedsim.privacy import mechanism


def grid(config: Config, noise_multiplier: float, parameters: int) -> FixedPoint | None:
    """Return the grid of clients' messages; None where they are sent as floating-point numbers.

    Args:
        config: the experiment.
        noise_multiplier: nominal.
        parameters: P, of the model.

    Raises:
        InputError: where no grid has room for the noise.
    """
    if not config.federation.trust.model.summed_securely:
        return None
    return fixed_point.agreed(config, noise_multiplier, parameters)


def sensitivity(config: Config, noise_multiplier: float, parameters: int) -> float:
    """Return how far the target moves the sum, rounding included: what noise is a multiple of.

    Args:
        config: the experiment.
        noise_multiplier: nominal.
        parameters: P, of the model.

    Raises:
        InputError: as of `grid`.
    """
    found = grid(config, noise_multiplier, parameters)
    if found is not None:
        return found.sensitivity
    return mechanism.sensitivity(config.privacy.neighbouring, config.training.clipping_norm)
