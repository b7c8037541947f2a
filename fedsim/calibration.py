"""The least noise that reaches a privacy target."""

import math
import sys

from scipy.optimize import brentq

from fedsim import gaussian
from fedsim.accounting import accountant
from fedsim.errors import InputError
from fedsim.mechanism import Mechanism, Neighbouring


def noise_multiplier(
    target_epsilon: float,
    delta: float,
    steps: int,
    sampling_rate: float = 1.0,
    neighbouring: Neighbouring = Neighbouring.ADD_REMOVE,
    accountant_name: str = "pld",
) -> float:
    """Return the least noise multiplier at which the accountant certifies (epsilon, delta).

    Precise to a relative 1e-9, and never on the side of too little noise. Raises InputError for
    values out of range, for a mechanism that the accountant does not cover, and for a target that
    no noise reaches or that needs none.
    """
    judge = accountant(accountant_name)
    unsampled = math.sqrt(max(1, steps)) / gaussian.mu_of_epsilon(target_epsilon, delta)
    start = Mechanism(unsampled, steps, sampling_rate, neighbouring)
    _check_noise_is_needed(start, delta)

    # In delta rather than in epsilon: it also has a root where the target is epsilon = 0.
    def excess(log_multiplier: float) -> float:
        mechanism = Mechanism(math.exp(log_multiplier), steps, sampling_rate, neighbouring)
        return math.log(max(judge.delta(mechanism, target_epsilon), sys.float_info.min)) - log_delta

    log_delta = math.log(delta)
    low = high = math.log(unsampled * sampling_rate)
    while excess(low) <= 0:
        high, low = low, low - math.log(2)
    while excess(high) > 0:
        low, high = high, high + math.log(2)
        if high > math.log(unsampled) + 40:
            silenced = Mechanism(math.exp(high), steps, sampling_rate, neighbouring)
            least = judge.epsilon(silenced, delta)
            raise InputError(
                f"no noise brings {judge.name} to epsilon {target_epsilon:.4g} at delta {delta:g}: "
                f"it certifies {least:.4g} at best; choose a larger epsilon or the accountant pld"
            )
    root = float(brentq(excess, low, high, xtol=1e-10, rtol=1e-14))
    while excess(root) > 0:
        root += 1e-10
    return math.exp(root)


def _check_noise_is_needed(mechanism: Mechanism, delta: float) -> None:
    if delta >= mechanism.participation:
        raise InputError(
            f"delta is {delta:g}, but a record takes part in any step at all only with probability "
            f"{mechanism.participation:.3g}, so that no noise is needed; give a smaller delta"
        )
